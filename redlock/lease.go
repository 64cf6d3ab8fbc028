package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Lease is a lock that was granted, until its validity runs out. Only the lease
// can prolong or release the lock. It may be used by several goroutines.
type Lease struct {
	locker *Locker
	key    string
	token  string
	ttl    time.Duration
	vote   *ballot

	mu         sync.Mutex
	until      moment    // end of validity
	expires    time.Time // when the last of our keys is gone by itself
	granted    time.Duration
	lowest     time.Duration
	extensions int
}

func newLease(vote *ballot, until moment, expires time.Time, validity time.Duration) *Lease {
	q := vote.question
	return &Lease{
		locker: vote.locker, key: q.Key, token: q.Token, ttl: q.TTL, vote: vote,
		until: until, expires: expires, granted: validity, lowest: validity,
	}
}

func (l *Lease) Key() string { return l.key }

// Validity is how long the lease may still be trusted, by our own clock: a monotonic
// one, and one that runs on while the machine is suspended.
// Compare it with zero right before an effect; a context that has not ended proves
// less, because the goroutine that ends it may be late.
func (l *Lease) Validity() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.locker.left(l.until)
}

// Evidence is how good the lease was.
type Evidence struct {
	Votes      int // masters that granted it, late ones included
	Masters    int
	Granted    time.Duration // validity when it was granted
	Lowest     time.Duration // the lowest that validity has been
	Left       time.Duration // validity now
	Extensions int
}

func (l *Lease) Evidence() Evidence {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := max(0, l.locker.left(l.until))
	return Evidence{
		Votes: l.vote.votes(), Masters: len(l.locker.masters),
		Granted: l.granted, Lowest: min(l.lowest, left), Left: left, Extensions: l.extensions,
	}
}

// Extend makes the lease as long again as it was when it was granted. It asks the
// masters to prolong keys that hold our token, never to make one, and succeeds only
// while the lease is still valid: a late answer is no ownership. Masters that lost
// their key, or never had it, are given one afterwards, while the quorum holds.
func (l *Lease) Extend(ctx context.Context) error {
	begun := time.Now()
	err := l.extend(ctx)
	l.locker.tell(Extend, l.key, begun, l.Validity(), err)
	return err
}

func (l *Lease) extend(ctx context.Context) error {
	if l.Validity() <= 0 {
		return fmt.Errorf("extend %q: %w", l.key, ErrLost)
	}
	start := l.locker.now()
	l.mu.Lock()
	l.expires = start.at.Add(l.ttl) // of some keys, whatever comes of it
	l.mu.Unlock()
	vote := l.locker.ask(Question{Op: Extend, Key: l.key, Token: l.token, TTL: l.ttl, Deadline: start.at.Add(l.locker.opts.MasterTimeout)}, start.at.Add(l.ttl))
	if err := vote.wait(ctx); err != nil {
		return fmt.Errorf("extend %q: %w", l.key, err)
	}
	if !vote.won() {
		return fmt.Errorf("extend %q: %w", l.key, vote.gone())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.locker.left(l.until)
	if left <= 0 {
		return fmt.Errorf("extend %q: %w: the masters agreed too late", l.key, ErrLost)
	}
	l.lowest = min(l.lowest, left)
	l.until = start.add(l.ttl - l.locker.drift(l.ttl))
	l.extensions++
	vote.heal(l.vote)
	return nil
}

// Limits of [Lease.Keep]. With neither bound given, 1,000 extensions are the most.
type Limits struct {
	Extensions int           // how often to extend
	Hold       time.Duration // how long to go on extending
}

// Keep extends the lease for as long as the returned context lives, beginning at
// half of its validity. The context ends with a cause that is [ErrLost] before
// validity does, whatever the network does. Call stop when the work is done; it
// returns when no extension is under way.
func (l *Lease) Keep(ctx context.Context, limits Limits) (held context.Context, stop func()) {
	if limits == (Limits{}) {
		limits.Extensions = 1000
	}
	held, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if why := l.keep(held, limits); why != nil {
			cancel(why)
		}
	}()
	return held, func() {
		cancel(context.Canceled)
		<-ended
	}
}

// keep returns why the lease could not be held any longer, or nil if ctx ended.
func (l *Lease) keep(ctx context.Context, limits Limits) error {
	begun := time.Now()
	margin := l.ttl / 100 // the context must have ended when validity does
	why := fmt.Errorf("%w: it could not be extended in time", ErrLost)
	pause := l.Validity() / 2
	for {
		left := l.Validity() - margin
		if left <= 0 {
			return why
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(pause, left)):
		}
		switch {
		case limits.Extensions > 0 && l.Evidence().Extensions >= limits.Extensions:
			why, pause = fmt.Errorf("%w: it was extended %d times, the most allowed", ErrLost, limits.Extensions), left
			continue
		case limits.Hold > 0 && time.Since(begun) >= limits.Hold:
			why, pause = fmt.Errorf("%w: it was held for %s, the longest allowed", ErrLost, limits.Hold), left
			continue
		}
		switch err := l.extendInTime(ctx, margin); {
		case err == nil:
			pause = l.Validity() / 2
		case errors.Is(err, ErrLost):
			return err
		default:
			why, pause = fmt.Errorf("%w: %w", ErrLost, err), l.ttl/20
		}
	}
}

func (l *Lease) extendInTime(ctx context.Context, margin time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, l.Validity()-margin)
	defer cancel()
	return l.Extend(ctx)
}

// Release gives the lock back on all masters, on no context but its own, and
// returns when a quorum has confirmed it or the master timeout has passed. Masters
// that did not confirm are asked again in the background. The error is ErrLost if
// the lease had ended before, and a [NoQuorumError] if too few masters answered.
func (l *Lease) Release() error {
	begun := time.Now()
	err := l.release()
	l.locker.tell(Release, l.key, begun, 0, err)
	return err
}

func (l *Lease) release() error {
	l.mu.Lock()
	expires, late := l.expires, l.locker.left(l.until) <= 0
	l.until = moment{}
	l.mu.Unlock()

	q := Question{Op: Release, Key: l.key, Token: l.token, Deadline: time.Now().Add(l.locker.opts.MasterTimeout)}
	vote := l.locker.askHolders(q, expires, l.vote.disown(expires))
	_ = vote.wait(context.Background())
	l.locker.waiters.freed(l.key)
	switch {
	case late:
		return fmt.Errorf("release %q: %w", l.key, ErrLost)
	case vote.won():
		return nil
	}
	return fmt.Errorf("release %q: %w", l.key, vote.gone())
}
