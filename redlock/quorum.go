package redlock

import (
	"context"
	"fmt"
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
	taken    []seat        // of a release: what the masters said when the key was taken
	decided  chan struct{} // closed when the result stands; for Ping when all have answered

	mu        sync.Mutex
	settled   bool      // decided is closed
	until     time.Time // when the key is gone by itself
	abandoned bool
	chased    bool    // and a release was asked behind every SET that had no answer
	heals     *ballot // of an extension that was won: the vote that took the lock
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
	if b.taken != nil && a.Err == nil && !b.taken[i].OK {
		a.OK = true // it is not there, and nobody knows that it ever was
	}
	b.mu.Lock()
	b.seats[i] = seat{a, true}
	if a.Err == nil && a.OK {
		b.yes++
	} else {
		b.no++
	}
	if !b.settled && !b.open() {
		b.settled = true
		close(b.decided)
	}
	times, until, heals := b.times(a), b.until, b.heals
	b.mu.Unlock()
	if times > 0 {
		b.chore(i, times, until, b.taken == nil || b.taken[i].answered)
	}
	if heals != nil && a.Err == nil && !a.OK {
		heals.takeAgain(i)
	}
}

// times is how often the master that gave this answer must confirm that the key is
// gone.
func (b *ballot) times(a Answer) int {
	switch {
	case b.question.Op == Release && a.Err != nil:
		return 1
	case b.question.Op != Take || !b.abandoned:
		return 0
	case a.Err == nil && a.OK && !b.chased:
		return 1
	case a.Err != nil && a.Sent:
		return lost
	}
	return 0
}

// chore has the janitor see to it that a master has no key of this vote. Behind a SET
// that has no answer yet it is not free.
func (b *ballot) chore(i, times int, until time.Time, free bool) {
	if times == lost {
		until = time.Time{}
	}
	b.locker.janitor.release(&chore{
		master: b.locker.masters[i], key: b.question.Key, token: b.question.Token,
		free: free, until: until, times: times,
	})
}

// abandon undoes an attempt on every master that may hold its key. It chases the SETs
// that have no answer yet where these could be in somebody's way: a release goes on
// their heels. Else it is cheaper to hear first whether there is anything to release.
func (b *ballot) abandon(chase bool) {
	b.mu.Lock()
	b.abandoned = true
	seats, until := slices.Clone(b.seats), b.until
	times := make([]int, len(seats))
	for i, s := range seats {
		if s.answered {
			times[i] = b.times(s.Answer)
		} else if chase {
			times[i] = 1
		}
	}
	b.chased = chase
	b.mu.Unlock()
	for i, n := range times {
		if n > 0 {
			b.chore(i, n, until, seats[i].answered)
		}
	}
}

// disown has the answers that come late cleaned up, when a release is about to be
// asked of every master that may hold the key. It returns the answers so far.
func (b *ballot) disown(until time.Time) []seat {
	b.mu.Lock()
	b.abandoned, b.chased, b.until = true, true, until
	seats := slices.Clone(b.seats)
	b.mu.Unlock()
	for i, s := range seats {
		if s.answered && s.Err != nil && s.Sent {
			b.chore(i, lost, until, true)
		}
	}
	return seats
}

// heal has the masters that lost our key take it again, now that a quorum is known
// to hold it still. They gain nothing for this extension: what they take counts from
// the next one on, when another master may be away.
func (b *ballot) heal(taken *ballot) {
	b.mu.Lock()
	b.heals = taken
	seats := slices.Clone(b.seats)
	b.mu.Unlock()
	for i, s := range seats {
		if s.answered && s.Err == nil && !s.OK {
			taken.takeAgain(i)
		}
	}
}

// takeAgain asks one master once more for the key of a lease that holds.
func (b *ballot) takeAgain(i int) {
	b.mu.Lock()
	s := b.seats[i]
	if b.abandoned || !s.answered { // or it is being asked already, for the extension before
		b.mu.Unlock()
		return
	}
	if s.Err == nil && s.OK {
		b.yes--
	} else {
		b.no--
	}
	b.seats[i] = seat{}
	b.until = time.Now().Add(b.question.TTL)
	q := b.question
	b.mu.Unlock()
	q.Deadline = time.Now().Add(b.locker.opts.MasterTimeout)
	b.locker.masters[i].Ask(q, b, i)
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
	late := b.locker.timers.Get().(*time.Timer)
	late.Reset(time.Until(b.question.Deadline))
	defer func() {
		late.Stop()
		b.locker.timers.Put(late)
	}()
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

// gone says why an extension was not won: the lease is lost if too many masters have
// said that they have the key no longer. Those that did not answer may still have it.
func (b *ballot) gone() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var causes []*MasterError
	no := 0
	for i, s := range b.seats {
		switch name := b.locker.masters[i].Name(); {
		case s.Err != nil:
			causes = append(causes, &MasterError{name, s.Err})
		case s.answered && !s.OK:
			causes = append(causes, &MasterError{name, errGone})
			no++
		case !s.answered:
			causes = append(causes, &MasterError{name, errTimeout})
		}
	}
	if no > len(b.seats)-b.locker.quorum {
		return fmt.Errorf("%w: %d of %d masters no longer have its key", ErrLost, no, len(b.seats))
	}
	return &NoQuorumError{Key: b.question.Key, Need: b.locker.quorum, Of: len(b.seats), Causes: causes}
}

// refusal says why the vote was not won: there is no quorum if those who did not
// answer prevented it by themselves, otherwise the key is somebody else's.
func (b *ballot) refusal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, quorum := len(b.seats), b.locker.quorum
	var causes []*MasterError
	taken := &TakenError{Key: b.question.Key, at: -1}
	for i, s := range b.seats {
		switch name := b.locker.masters[i].Name(); {
		case s.Err != nil:
			causes = append(causes, &MasterError{name, s.Err})
		case s.answered && !s.OK:
			taken.at = i
			if b.keysOf(s.Holder) >= quorum {
				taken.Note, taken.Held = noteOf(s.Holder), true
			}
		case !s.answered && !time.Now().Before(b.question.Deadline):
			causes = append(causes, &MasterError{name, errTimeout})
		}
	}
	if n-len(causes) < quorum {
		return &NoQuorumError{Key: b.question.Key, Need: quorum, Of: n, Causes: causes}
	}
	return taken
}

// keysOf counts the masters that named this holder.
func (b *ballot) keysOf(holder string) (n int) {
	for _, s := range b.seats {
		if s.answered && s.Err == nil && !s.OK && s.Holder == holder {
			n++
		}
	}
	return n
}
