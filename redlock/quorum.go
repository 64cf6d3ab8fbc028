package redlock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A ballot counts what the masters answer to one question. An error counts as a
// no. The vote is decided as soon as a quorum has said yes, or can no longer do so.
//
// It also minds the answers that come after the decision: a key that a master set
// for an attempt that was given up is released, and one whose release was not
// confirmed is left to the janitor.
type ballot struct {
	locker   *Locker
	question Question
	until    time.Time     // when the key is gone by itself
	decided  chan struct{} // closed when the result stands; for Ping when all have answered

	mu        sync.Mutex
	abandoned bool
	seats     []seat
	yes, no   int
}

// A seat is one master's place in a ballot.
type seat struct {
	Answer
	answered bool
}

func newBallot(l *Locker, q Question, until time.Time) *ballot {
	return &ballot{locker: l, question: q, until: until, decided: make(chan struct{}), seats: make([]seat, len(l.masters))}
}

// Hear counts the answer of the master at this seat.
func (b *ballot) Hear(i int, a Answer) {
	b.mu.Lock()
	was := b.open()
	b.seats[i] = seat{a, true}
	if a.Err == nil && a.OK {
		b.yes++
	} else {
		b.no++
	}
	if was && !b.open() {
		close(b.decided)
	}
	abandoned := b.abandoned
	b.mu.Unlock()
	b.cleanUp(i, a, abandoned)
}

// cleanUp undoes what an answer says was done in vain.
func (b *ballot) cleanUp(i int, a Answer, abandoned bool) {
	times := 1
	switch {
	case b.question.Op == Take && abandoned && a.Err == nil && a.OK:
	case b.question.Op == Take && abandoned && a.Err != nil && a.Sent:
		// Its SET may still be on its way on a connection that was given up, and be
		// overtaken by one release; not by two.
		times = 2
	case b.question.Op == Release && a.Err != nil:
	default:
		return
	}
	b.locker.janitor.release(b.locker.masters[i], b.question.Key, b.question.Token, b.until, times)
}

// abandon undoes an attempt on every master that may hold its key, now or when its
// answer comes.
func (b *ballot) abandon() {
	for i, s := range b.giveUp() {
		if s.answered {
			b.cleanUp(i, s.Answer, true)
		}
	}
}

// giveUp has late answers cleaned up from now on, and returns those that came.
func (b *ballot) giveUp() []seat {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abandoned = true
	return slices.Clone(b.seats)
}

// open reports whether the vote is not decided yet.
func (b *ballot) open() bool {
	if b.question.Op == Ping {
		return b.yes+b.no < len(b.seats)
	}
	return b.yes < b.locker.quorum && len(b.seats)-b.no >= b.locker.quorum
}

// wait returns nil when the vote is decided or its deadline has passed, and the
// context's error if that ends first.
func (b *ballot) wait(ctx context.Context) error {
	late := time.NewTimer(time.Until(b.question.Deadline))
	defer late.Stop()
	select {
	case <-b.decided:
		return nil
	case <-late.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *ballot) won() bool { return b.votes() >= b.locker.quorum }

func (b *ballot) votes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.yes
}

// refusal says why the vote was not won: there is no quorum if those who did not
// answer prevented it by themselves, otherwise the key is somebody else's.
func (b *ballot) refusal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, quorum := len(b.seats), b.locker.quorum
	lost := &NoQuorumError{Key: b.question.Key, Need: quorum, Of: n}
	holders := map[string]int{}
	for i, s := range b.seats {
		switch name := b.locker.masters[i].Name(); {
		case s.Err != nil:
			lost.Causes = append(lost.Causes, &MasterError{name, s.Err})
		case s.answered && !s.OK:
			holders[s.Holder]++
		case !s.answered && time.Now().After(b.question.Deadline):
			lost.Causes = append(lost.Causes, &MasterError{name, errTimeout})
		}
	}
	if n-len(lost.Causes) < quorum {
		return lost
	}
	taken := &TakenError{Key: b.question.Key}
	for holder, keys := range holders {
		if keys >= quorum {
			taken.Note, taken.Held = noteOf(holder), true
		}
	}
	return taken
}
