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
	taken    []seat        // of a release: what the masters said when the key was taken
	decided  chan struct{} // closed when the result stands; for Ping when all have answered

	mu        sync.Mutex
	settled   bool      // decided is closed
	until     time.Time // when the key is gone by itself
	abandoned bool
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
	times, until, heals := b.toRelease(a), b.until, b.heals
	b.mu.Unlock()
	b.release(i, times, until)
	if heals != nil && a.Err == nil && !a.OK {
		heals.takeAgain(i)
	}
}

// toRelease says how often the master that gave this answer must confirm that the
// key is gone.
func (b *ballot) toRelease(a Answer) (times int) {
	switch {
	case b.question.Op == Take && b.abandoned && a.Err == nil && a.OK:
		return 1
	case b.question.Op == Take && b.abandoned && a.Err != nil && a.Sent:
		// Its SET may still be on its way on a connection that was given up, and be
		// overtaken by one release; not by two.
		return 2
	case b.question.Op == Release && a.Err != nil:
		return 1
	}
	return 0
}

func (b *ballot) release(i, times int, until time.Time) {
	if times > 0 {
		b.locker.janitor.release(b.locker.masters[i], b.question.Key, b.question.Token, until, times)
	}
}

// abandon undoes an attempt on every master that may hold its key, now or when its
// answer comes.
func (b *ballot) abandon() {
	b.mu.Lock()
	b.abandoned = true
	seats, until := slices.Clone(b.seats), b.until
	times := make([]int, len(seats))
	for i, s := range seats {
		if s.answered {
			times[i] = b.toRelease(s.Answer)
		}
	}
	b.mu.Unlock()
	for i, n := range times {
		b.release(i, n, until)
	}
}

// disown has the answers that come late cleaned up, after a release that was asked
// of every master that may hold the key. It returns the answers so far.
func (b *ballot) disown(until time.Time) []seat {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abandoned, b.until = true, until
	return slices.Clone(b.seats)
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
	holders, at := map[string]int{}, -1
	for i, s := range b.seats {
		switch name := b.locker.masters[i].Name(); {
		case s.Err != nil:
			lost.Causes = append(lost.Causes, &MasterError{name, s.Err})
		case s.answered && !s.OK:
			holders[s.Holder]++
			at = i
		case !s.answered && !time.Now().Before(b.question.Deadline):
			lost.Causes = append(lost.Causes, &MasterError{name, errTimeout})
		}
	}
	if n-len(lost.Causes) < quorum {
		return lost
	}
	taken := &TakenError{Key: b.question.Key, at: at}
	for holder, keys := range holders {
		if keys >= quorum {
			taken.Note, taken.Held = noteOf(holder), true
		}
	}
	return taken
}
