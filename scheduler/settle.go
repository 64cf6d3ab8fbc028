package scheduler

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"quorate/jobs"
	"quorate/redlock"
	"quorate/store"
)

var (
	// errElsewhere: another replica has this very tick, and writes its row.
	errElsewhere = errors.New("another replica has this tick")
	// errLate: the tick is older than its start deadline.
	errLate = errors.New("the start deadline has passed")
)

// settle sends a tick down the path, again while that may help and the start
// deadline allows it, and sees to it that the tick has its row in the end.
func (s *Scheduler) settle(ctx context.Context, tick jobs.Tick, begun func(jobs.Run)) (jobs.Run, error) {
	log := s.log.With("tick", tick.String())
	if begun == nil {
		begun = func(jobs.Run) {}
	}
	deadline := tick.Due.Add(tick.Job.StartDeadline.D())
	wait := 10 * time.Millisecond
	token := crand.Text()
	var before error // what kept it from running until it was too late
	for {
		run, err := s.trigger(ctx, tick, token, begun)
		switch {
		case errors.Is(err, errElsewhere):
			log.Debug("tick is another replica's")
			return run, err
		case errors.Is(err, errKept):
			log.Warn("run ended, and the store will be told when it is back", "run", run.ID, "error", err)
			return run, err
		case run.ID != 0 && err != nil:
			log.Error("run has no recorded end", "run", run.ID, "error", err)
			return run, err
		case err == nil:
			log.Info("run ended", "run", run.ID, "status", run.Status, "reason", run.Reason, "error", run.Error)
			s.ended(run)
			return run, nil
		}
		if errors.Is(err, errLate) && before != nil {
			err = before
		}
		before = err
		if mayPass(tick, err) && time.Now().Add(wait).Before(deadline) && sleep(ctx, jitter(wait)) {
			wait = min(wait*2, time.Second)
			continue
		}
		if ctx.Err() != nil && tick.Trigger == jobs.TriggerSchedule {
			log.Warn("tick is left to the other replicas", "error", err)
			return jobs.Run{}, ErrDraining
		}
		return s.account(context.WithoutCancel(ctx), tick, err)
	}
}

// mayPass reports whether what kept a tick from running may be over in a moment.
func mayPass(tick jobs.Tick, err error) bool {
	if isOverlap(err) {
		return tick.Job.Overlap != jobs.OverlapSkip
	}
	return !errors.Is(err, errLate)
}

// isOverlap reports whether a run under the same lock is in the way. A vote that
// was split is none: perhaps nobody has the lock.
func isOverlap(err error) bool {
	var taken *redlock.TakenError
	return errors.As(err, &taken) && taken.Held || errors.Is(err, store.ErrOverlap)
}

// account writes the row of a tick that did not run.
func (s *Scheduler) account(ctx context.Context, tick jobs.Tick, why error) (jobs.Run, error) {
	run := jobs.Run{
		Job: tick.Job.Name, Due: tick.Due, Attempt: tick.Attempt, Trigger: tick.Trigger,
		Status: jobs.Missed, Reason: reasonOf(why), Error: inWords(tick, why),
		Lock: tick.Lock(), Replica: s.replica, Revision: s.revision,
	}
	if run.Reason == jobs.ReasonOverlap {
		run.Status = jobs.Skipped
	}
	ctx, cancel := context.WithTimeout(ctx, recordWithin)
	defer cancel()
	written, err := s.record(ctx, run)
	if errors.Is(err, store.ErrAway) {
		s.owed.add(run)
	}
	if err != nil {
		s.log.Error("tick did not run, and that could not be recorded yet", "tick", tick.String(), "reason", run.Reason, "error", err)
		return run, fmt.Errorf("record %s as %s(%s): %w", tick, run.Status, run.Reason, err)
	}
	if len(written) == 0 {
		return run, errElsewhere // another replica ran it, or accounted for it
	}
	return written[0], nil
}

// inWords says why a tick did not run to somebody who knows the job's lock by the
// name that the config gives it.
func inWords(tick jobs.Tick, why error) string {
	var taken *redlock.TakenError
	if errors.As(why, &taken) && taken.Held {
		return fmt.Sprintf("lock %q is held for %s", tick.Lock(), taken.Note)
	}
	return why.Error()
}

const recordWithin = 5 * time.Second

// record writes rows of ticks that did not run, and tells of those that are new.
func (s *Scheduler) record(ctx context.Context, ended ...jobs.Run) ([]jobs.Run, error) {
	written, err := s.store.Record(ctx, ended...)
	for _, run := range written {
		s.log.Warn("tick did not run", "job", run.Job, "due", run.Due, "status", run.Status, "reason", run.Reason, "error", run.Error)
		s.ended(run)
	}
	return written, err
}

func reasonOf(err error) jobs.Reason {
	switch {
	case isOverlap(err):
		return jobs.ReasonOverlap
	case errors.Is(err, redlock.ErrNoQuorum), errors.Is(err, redlock.ErrTaken), errors.Is(err, redlock.ErrValidity):
		return jobs.ReasonNoQuorum
	case errors.Is(err, errLate):
		return jobs.ReasonLate
	case errors.Is(err, context.Canceled), errors.Is(err, ErrDraining):
		return jobs.ReasonShutdown
	}
	return jobs.ReasonNoStore
}

// A ledger keeps rows that the store was not there to take.
type ledger struct {
	mu   sync.Mutex
	rows []jobs.Run
}

// ledgerSize bounds what is kept; what goes beyond it is found again as a gap,
// with less to say about the reason.
const ledgerSize = 10_000

func (l *ledger) add(rows ...jobs.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, rows[:min(len(rows), ledgerSize-len(l.rows))]...)
}

func (l *ledger) takeAll() []jobs.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.rows
	l.rows = nil
	return rows
}

// jitter is a random time around d, so that replicas do not meet again.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// sleep reports whether it was not interrupted.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
