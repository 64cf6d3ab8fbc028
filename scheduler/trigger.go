package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
	"quorate/redlock"
	"quorate/store"
)

// trigger turns a tick into at most one run: the lease keeps the other replicas
// away, the claim makes the tick ours, the fence guards what the steps write. It
// makes one attempt; settle decides what an error means for the tick. begun hears
// of the run as soon as it has its row. The token is the same in all attempts, so
// that a claim whose answer was lost finds its run again.
func (s *Scheduler) trigger(ctx context.Context, tick jobs.Tick, token string, begun func(jobs.Run)) (jobs.Run, error) {
	if time.Since(tick.Due) > tick.Job.StartDeadline.D() {
		return jobs.Run{}, errLate
	}

	lease, err := s.locker.Acquire(ctx, lockKey(tick), tick.Job.TTL.D(), s.note(tick))
	if isHeldFor(err, tick) {
		return jobs.Run{}, errElsewhere
	}
	if err != nil {
		return jobs.Run{}, err
	}
	defer s.release(lease)

	run, err := s.claim(ctx, tick, token, lease)
	if errors.Is(err, store.ErrClaimed) || errors.Is(err, store.ErrRevision) {
		return jobs.Run{}, errElsewhere
	}
	if err != nil {
		return jobs.Run{}, err
	}
	run.Params = tick.Values()
	begun(run)

	held, stop := lease.Keep(ctx, redlock.Limits{Hold: tick.Job.Timeout.D() + tick.Job.TTL.D()})
	defer stop()
	held, forget := s.work.remember(held, run, tick.Job)
	defer forget()

	outcome := s.steps.Execute(held, steps.Hold{Job: tick.Job, Run: run, Validity: lease.Validity})
	outcome.Evidence = evidenceOf(lease)

	forget() // from here on, that the store has closed the run is our own doing
	return s.finish(ctx, run, outcome)
}

// claim asks the store for the tick, for no longer than the lease can be trusted.
func (s *Scheduler) claim(ctx context.Context, tick jobs.Tick, token string, lease *redlock.Lease) (jobs.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.Validity())
	defer cancel()
	run, err := s.store.Claim(ctx, store.Claim{
		Tick: tick, Replica: s.replica, Revision: s.revision, Token: token,
		Lease: storeLease(tick), Evidence: evidenceOf(lease),
	})
	if err != nil {
		return jobs.Run{}, fmt.Errorf("claim: %w", err)
	}
	return run, nil
}

// finish writes how the run ended, on a context that no cancel reaches. Where the
// store is away it goes to the journal, and is told from there. Without one, finish
// asks until the store has been away for too long; then the run's end is what the
// store finds out by itself, unknown.
func (s *Scheduler) finish(ctx context.Context, run jobs.Run, outcome jobs.Outcome) (jobs.Run, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
	defer cancel()
	for {
		within, cancel := context.WithTimeout(ctx, recordWithin)
		ended, err := s.store.Finish(within, run, outcome)
		cancel()
		if err == nil {
			return ended, nil
		}
		if errors.Is(err, store.ErrAway) && s.keep(run, outcome) {
			return run, fmt.Errorf("finish run %d as %s: %w, %w", run.ID, outcome.Status, err, errKept)
		}
		if !errors.Is(err, store.ErrAway) || !sleep(ctx, jitter(time.Second)) {
			return run, fmt.Errorf("finish run %d as %s: %w", run.ID, outcome.Status, err)
		}
	}
}

const finishWithin = time.Minute

// release gives the lock back on all masters. What cannot be confirmed now is
// repeated in the background, and ends with the TTL in any case.
func (s *Scheduler) release(lease *redlock.Lease) {
	if err := lease.Release(); err != nil {
		s.log.Warn("lock was not released everywhere", "lock", lease.Key(), "error", err)
	}
}

func lockKey(tick jobs.Tick) string { return "quorate:" + tick.Lock() }

// The note in a lock's value names the tick and the replica, so that a loser
// learns from Redis alone whether it lost to the same tick or to an earlier one.
func (s *Scheduler) note(tick jobs.Tick) string { return tick.String() + " by " + s.replica }

func isHeldFor(err error, tick jobs.Tick) bool {
	var taken *redlock.TakenError
	return errors.As(err, &taken) && taken.Held && strings.HasPrefix(taken.Note, tick.String()+" by ")
}

// storeLease is how long the store waits before it counts a silent run as lost:
// longer than the TTL, so that the lock has always ended first.
func storeLease(tick jobs.Tick) time.Duration { return tick.Job.TTL.D() + time.Second }

func evidenceOf(lease *redlock.Lease) jobs.Evidence {
	return jobs.Evidence(lease.Evidence())
}
