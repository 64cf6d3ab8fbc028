package redlock

import (
	"context"
	"sync"
	"time"
)

// A ballot counts what the masters answer to one question. An error counts as a
// no. The vote is decided as soon as a quorum has said yes, or can no longer do so.
type ballot struct {
	masters  []Master
	quorum   int
	deadline time.Time
	decided  chan struct{} // closed when the result stands
	complete chan struct{} // closed when everybody has answered

	mu       sync.Mutex
	answers  []Answer
	answered []bool
	yes, no  int
	failed   int // those of no that are errors
}

func newBallot(masters []Master, quorum int, deadline time.Time) *ballot {
	n := len(masters)
	return &ballot{
		masters: masters, quorum: quorum, deadline: deadline,
		decided: make(chan struct{}), complete: make(chan struct{}),
		answers: make([]Answer, n), answered: make([]bool, n),
	}
}

// cast counts the answer of master i. Answers that come after the decision still
// count as votes, but change nothing.
func (b *ballot) cast(i int, a Answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.open()
	b.answers[i], b.answered[i] = a, true
	switch {
	case a.Err != nil:
		b.no++
		b.failed++
	case a.OK:
		b.yes++
	default:
		b.no++
	}
	if was && !b.open() {
		close(b.decided)
	}
	if b.yes+b.no == len(b.masters) {
		close(b.complete)
	}
}

// open reports whether either result is still possible.
func (b *ballot) open() bool {
	return b.yes < b.quorum && len(b.masters)-b.no >= b.quorum
}

// wait returns nil when the vote is decided or its deadline has passed, and the
// context's error if that ends first.
func (b *ballot) wait(ctx context.Context) error { return b.until(ctx, b.decided) }

// all is wait for every answer, not only for the decision.
func (b *ballot) all(ctx context.Context) error { return b.until(ctx, b.complete) }

func (b *ballot) until(ctx context.Context, done <-chan struct{}) error {
	late := time.NewTimer(time.Until(b.deadline))
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *ballot) won() bool { return b.votes() >= b.quorum }

func (b *ballot) votes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.yes
}

func (b *ballot) answer(i int) (a Answer, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answers[i], b.answered[i]
}

// refusal says why the vote was not won: there is no quorum if those who did not
// answer prevented it by themselves, otherwise the key is somebody else's.
func (b *ballot) refusal(key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.masters)
	lost := &NoQuorumError{Key: key, Need: b.quorum, Of: n}
	holders := map[string]int{}
	for i, m := range b.masters {
		switch a := b.answers[i]; {
		case a.Err != nil:
			lost.Causes = append(lost.Causes, &MasterError{m.Name(), a.Err})
		case b.answered[i] && !a.OK:
			holders[a.Holder]++
		case !b.answered[i] && time.Now().After(b.deadline):
			lost.Causes = append(lost.Causes, &MasterError{m.Name(), errTimeout})
		}
	}
	if n-len(lost.Causes) < b.quorum {
		return lost
	}
	taken := &TakenError{Key: key}
	for holder, keys := range holders {
		if keys >= b.quorum {
			taken.Note, taken.Held = noteOf(holder), true
		}
	}
	return taken
}
