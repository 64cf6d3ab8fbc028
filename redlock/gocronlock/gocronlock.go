// Package gocronlock lets a gocron scheduler lock its jobs by redlock, for those who
// have gocron and want no more than a lock.
//
//	gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.New(locker, time.Minute)))
//
// What it promises: while one replica runs a job, no other replica does, for as long
// as the lease can be extended; the lock is released when the job ends, also when
// the scheduler is shut down, which cancels the job's context first.
//
// What no lock of this kind can promise, because gocron tells a locker the name of
// the job and not when it was due:
//
//   - One run for each tick. A replica that ticks a little later, or is a little
//     slower, finds the lock released by a run that has ended already, and runs the
//     same tick again. Two replicas whose clocks differ by 20 ms run a short job
//     twice nearly every time.
//   - That a job stops when its lease is lost. gocron's lock has no way to tell the
//     job. Locker.Lost says which to watch, for those who can.
//   - Anything about jobs that share a name; gocron names a job by its function
//     unless told otherwise.
//
// quorate's own scheduler names each tick, claims it in a store and fences what it
// does; that is why it uses gocron as a clock only, and not this package.
package gocronlock

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"

	"quorate/redlock"
)

// A Locker locks jobs by their names.
type Locker struct {
	locker *redlock.Locker
	ttl    time.Duration

	// Lost, where it is set, is told of each job whose lease ended while it ran.
	Lost func(job string, why error)
}

// New returns a gocron.Locker. The ttl is how long a lock outlives a replica that
// vanished; it is extended for as long as a job runs.
func New(locker *redlock.Locker, ttl time.Duration) *Locker {
	return &Locker{locker: locker, ttl: ttl}
}

// Lock makes one attempt. gocron skips the tick on any error.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.locker.Acquire(ctx, job, l.ttl, "")
	if err != nil {
		return nil, err
	}
	// The context is the job's own, and ends with a shutdown while the job may still
	// be at work: the lease is kept until Unlock.
	held, stop := lease.Keep(context.WithoutCancel(ctx), redlock.Limits{Extensions: 1 << 30})
	if l.Lost != nil {
		context.AfterFunc(held, func() {
			if why := context.Cause(held); why != context.Canceled {
				l.Lost(job, why)
			}
		})
	}
	return lock{lease, stop}, nil
}

type lock struct {
	lease *redlock.Lease
	stop  func()
}

// Unlock releases the lock on no context but its own: that of the job has ended.
func (l lock) Unlock(context.Context) error {
	l.stop()
	return l.lease.Release()
}
