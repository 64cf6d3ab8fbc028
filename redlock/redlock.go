// Package redlock takes locks that a majority of independent Redis masters
// grants: the algorithm that Redis documents as Redlock, with the holes closed
// that its clients usually leave open.
//
//	locker, err := redlock.New(redlock.Options{}, "redis://a:6379", "redis://b:6379", …)
//	defer locker.Close()
//
//	lease, err := locker.Acquire(ctx, "restock", 10*time.Second, "")
//	if errors.Is(err, redlock.ErrTaken) {
//		return // somebody else has it
//	}
//	if err != nil {
//		return err // too few masters answered: err says which, and why
//	}
//	defer lease.Release()
//
//	held, stop := lease.Keep(ctx, redlock.Limits{}) // ends before the lease does
//	defer stop()
//	work(held)
//
// # What it promises
//
// Two leases on one key are not valid at the same time as long as the masters'
// clocks run at rates that differ less than the drift allowance, and those that have
// not forgotten the key within its TTL, undetected, are still a majority of all: of
// five votes two may be forgotten, of three none. A lease's validity
// is counted from before the first request was sent, on the monotonic clock, less
// drift. The context of [Lease.Keep] ends before validity does, whatever the
// network does. No master can hold a caller up longer than [Options.MasterTimeout].
// A failed or abandoned attempt leaves no key behind on a master that can be
// reached.
//
// # What it does not promise
//
// A majority of masters that are flushed, or whose wall clocks jump ahead, forget a
// lock that somebody still holds; a restart is noticed (see [Options.RestartGuard]),
// these are not. Asking each master for its time or for a marker key with every lock
// would notice some of it, at twice the cost, and still not all. Nor is a vote put off
// until the server has synced its disk, or a restarted one excused because it does:
// what it says of its disk it says of this life, and it is about the one before.
//
// A process that is paused between looking at its lease and doing the work acts
// late; no lock service can prevent that. Where an effect must not happen twice,
// give it a fence that the place of the effect checks; this package has none to
// give, because counters on independent masters cannot make one. Nor can their votes
// make a semaphore. There is no lock of several keys at once: take one key for what
// must be locked together.
//
// A master that hangs can do what it was asked long after everybody has turned to
// something else. That is not prevented, it is undone as soon as it answers again.
//
// # On the wire
//
// One connection per master, and one goroutine, however many callers there are; one
// more of each where somebody has used [Locker.Wait] and that master was asked to
// tell when a key is free. The user of an ACL needs
//
//	~KEYS -@all +set +get +del +pexpire +evalsha +script|load +info +ping
//
// which is tried at each connection, and +client|tracking to be told, without which
// waiting is by time alone.
//
// A plain string key, set by SET NX PX, and removed or prolonged by a script that
// compares the value: other Redlock clients, and everything else that locks with
// SET NX, are excluded by us and exclude us, if they use the same names on the same
// masters. The masters are Redis 7.0 or newer, each independent of the others:
// replicas, clusters and servers that may evict keys get no vote.
//
// Nothing of quorate is imported here; the package could be a module of its own.
package redlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Options of a [Locker]. The zero value is a good one.
type Options struct {
	// MasterTimeout is how long a master may take to answer, before it counts as a
	// no; 0 means 50 ms. It bounds acquiring, extending and releasing alike.
	MasterTimeout time.Duration

	// DriftFactor is the part of the TTL that is given away to clocks that run at
	// different rates; 0 means 0.01. Two milliseconds are added to it.
	DriftFactor float64

	// MinValidity is the least validity that a new lease must have; 0 means half of
	// its TTL.
	MinValidity time.Duration

	// MaxTTL is the longest TTL that anybody uses on these masters; 0 means a
	// minute. Acquire refuses a longer one.
	MaxTTL time.Duration

	// RestartGuard is how long a master that was restarted gets no vote on new
	// leases, because it may have forgotten one that still holds; 0 means MaxTTL,
	// and a negative value turns the guard off.
	RestartGuard time.Duration

	// AnyNumber permits an even number of masters.
	AnyNumber bool

	// TLS is for rediss:// addresses: authorities and certificates other than the
	// system's.
	TLS *tls.Config

	// Observe is told of each attempt, extension and release when it is over, by the
	// goroutine that asked for it.
	Observe func(Event)
}

func (o Options) withDefaults() Options {
	if o.MasterTimeout == 0 {
		o.MasterTimeout = 50 * time.Millisecond
	}
	if o.DriftFactor == 0 {
		o.DriftFactor = 0.01
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = time.Minute
	}
	if o.RestartGuard == 0 {
		o.RestartGuard = o.MaxTTL
	}
	return o
}

// The limits of what Acquire takes.
const (
	MinTTL = 10 * time.Millisecond
	MaxKey = 512
)

// A Locker acquires leases. It may be used by any number of goroutines.
type Locker struct {
	masters []Master
	quorum  int
	opts    Options
	janitor *janitor
	waiters *waiters
	boot    func() time.Duration // a clock that runs on during sleep
	timers  sync.Pool            // one is needed for each question

	stop  context.CancelFunc
	ended sync.WaitGroup
}

// New returns a Locker over the Redis masters at these URLs. It does not dial:
// [Locker.Check] does.
func New(opts Options, urls ...string) (*Locker, error) {
	opts = opts.withDefaults()
	known, waiting := &census{lives: map[string]string{}}, &waiters{byKey: map[string][]chan struct{}{}}
	masters := make([]Master, len(urls))
	for i, url := range urls {
		m, err := newRedisMaster(url, opts, known, waiting)
		if err != nil {
			return nil, fmt.Errorf("master %d of %d: %w", i+1, len(urls), err)
		}
		masters[i] = m
	}
	l, err := over(opts, masters...)
	if err != nil {
		closeAll(masters)
		return nil, err
	}
	l.waiters = waiting
	return l, nil
}

// over returns a Locker over any masters.
func over(opts Options, masters ...Master) (*Locker, error) {
	opts = opts.withDefaults()
	n := len(masters)
	switch {
	case n == 0:
		return nil, errors.New("redlock: no masters given")
	case n%2 == 0 && !opts.AnyNumber:
		return nil, fmt.Errorf("redlock: %d masters tolerate no more failures than %d do: use an odd number", n, n-1)
	case opts.MasterTimeout < 0 || opts.DriftFactor < 0 || opts.DriftFactor >= 1 || opts.MinValidity < 0 || opts.MaxTTL < MinTTL:
		return nil, fmt.Errorf("redlock: options out of range: want none below zero, DriftFactor below 1, MaxTTL of %s or more", MinTTL)
	}
	seen := map[string]bool{}
	for _, m := range masters {
		if seen[m.Name()] {
			return nil, fmt.Errorf("redlock: master %s is listed twice: its vote would count double", m.Name())
		}
		seen[m.Name()] = true
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Locker{masters: masters, quorum: n/2 + 1, opts: opts, janitor: newJanitor(opts.MasterTimeout), waiters: &waiters{byKey: map[string][]chan struct{}{}}, boot: sinceBoot, stop: stop}
	l.timers.New = func() any { return time.NewTimer(time.Hour) }
	l.ended.Go(func() { l.watch(ctx) })
	return l, nil
}

// Acquire makes one attempt to take the key for ttl, and returns a lease whose
// validity is at least [Options.MinValidity]. It returns as soon as a quorum has
// said yes, or can no longer do so; never later than the master timeout. The note
// travels in the key's value, for those who find it taken: see [TakenError].
//
// The error is a [TakenError], a [NoQuorumError], a [ValidityError], or that of
// ctx. Whatever the error, the attempt is undone on every master that it may have
// reached.
func (l *Locker) Acquire(ctx context.Context, key string, ttl time.Duration, note string) (*Lease, error) {
	if err := l.checkRequest(key, ttl, note); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("acquire %q: %w", key, context.Cause(ctx))
	}
	start := l.now()
	lease, err := l.take(ctx, start, key, ttl, note)
	var granted time.Duration
	if err == nil {
		granted = lease.granted
	}
	l.tell(Take, key, start.at, granted, err)
	return lease, err
}

func (l *Locker) take(ctx context.Context, start moment, key string, ttl time.Duration, note string) (*Lease, error) {
	gone := start.at.Add(ttl)
	vote := l.ask(Question{Op: Take, Key: key, Token: newToken(note), TTL: ttl, Deadline: start.at.Add(l.opts.MasterTimeout)}, gone)
	err := vote.wait(ctx)

	switch {
	case err != nil:
		err = fmt.Errorf("acquire %q: %w", key, err)
	case !vote.won():
		err = vote.refusal()
	default:
		until := start.add(ttl - l.drift(ttl))
		validity := l.left(until)
		if validity >= l.minValidity(ttl) {
			return newLease(vote, until, gone, validity), nil
		}
		err = &ValidityError{Key: key, Left: validity, Want: l.minValidity(ttl)}
	}
	var taken *TakenError
	vote.abandon(!errors.As(err, &taken) || !taken.Held)
	return nil, err
}

func (l *Locker) checkRequest(key string, ttl time.Duration, note string) error {
	switch {
	case key == "" || len(key) > MaxKey:
		return fmt.Errorf("redlock: key of %d bytes: want 1 to %d", len(key), MaxKey)
	case ttl < MinTTL || ttl > l.opts.MaxTTL:
		return fmt.Errorf("redlock: ttl %s: want %s to %s", ttl, MinTTL, l.opts.MaxTTL)
	case len(note) > MaxKey:
		return fmt.Errorf("redlock: note of %d bytes: want at most %d", len(note), MaxKey)
	}
	return nil
}

// ask puts the question to all masters. The key is gone by itself at until.
func (l *Locker) ask(q Question, until time.Time) *ballot {
	vote := newBallot(l, q, until)
	for i, m := range l.masters {
		m.Ask(q, vote, i)
	}
	return vote
}

// askHolders is ask for a release: of the masters that may have the key. The others
// need not be asked whether it is gone.
func (l *Locker) askHolders(q Question, until time.Time, taken []seat) *ballot {
	vote := newBallot(l, q, until)
	vote.taken = taken
	for i, m := range l.masters {
		s := taken[i]
		if s.answered && !s.OK && !s.Sent {
			vote.Hear(i, Answer{OK: true})
			continue
		}
		q.Free = s.answered
		m.Ask(q, vote, i)
	}
	return vote
}

func (l *Locker) drift(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*l.opts.DriftFactor) + 2*time.Millisecond
}

func (l *Locker) minValidity(ttl time.Duration) time.Duration {
	if l.opts.MinValidity > 0 {
		return l.opts.MinValidity
	}
	return (ttl - l.drift(ttl)) / 2
}

// Check asks every master whether it is well, connects to those that it has no
// connection to, and returns what they said. The error is a [NoQuorumError] if too
// few of them answered. One in quarantine answers, and its Status says until when it
// has no vote on new leases.
func (l *Locker) Check(ctx context.Context) ([]Status, error) {
	vote := l.ask(Question{Op: Ping, Deadline: time.Now().Add(2 * connectWithin)}, time.Time{})
	err := vote.wait(ctx)
	if err == nil && !vote.won() {
		err = vote.refusal()
	}
	return l.Status(), err
}

// Status says how the masters are, as they last answered.
func (l *Locker) Status() []Status {
	all := make([]Status, len(l.masters))
	for i, m := range l.masters {
		all[i] = m.Status()
		all[i].Owed = l.janitor.owed(m)
	}
	return all
}

// Quorum is how many masters must agree.
func (l *Locker) Quorum() int { return l.quorum }

// watchEvery is how often an idle master is asked how it is: connections stay
// warm, and a restart is noticed before the next lock needs the answer.
const watchEvery = 5 * time.Second

func (l *Locker) watch(ctx context.Context) {
	beat := time.NewTicker(watchEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			_, _ = l.Check(ctx) // Status keeps what was answered
		}
	}
}

const lastWords = 200 * time.Millisecond

// Close gives up the connections, once the masters have heard what they were asked
// before, releases above all; a master that hangs is waited for no longer than its
// timeout, nor than lastWords. Leases that are still held end with their TTL.
func (l *Locker) Close() {
	l.stop()
	l.ended.Wait()
	// Questions are answered in their order, so this answer comes behind all others.
	deadline := time.Now().Add(min(l.opts.MasterTimeout, lastWords))
	_ = l.ask(Question{Op: Ping, Deadline: deadline}, time.Time{}).wait(context.Background())
	l.janitor.close()
	closeAll(l.masters)
}

func closeAll(masters []Master) {
	for _, m := range masters {
		if m != nil {
			m.Close()
		}
	}
}
