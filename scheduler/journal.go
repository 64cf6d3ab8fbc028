package scheduler

import (
	"context"
	"errors"
	"time"

	"quorate/jobs"
	"quorate/store"
)

// errKept: how a run ended is in the journal, as the store is away.
var errKept = errors.New("kept in the journal")

// keep writes how a run ended into the journal, if this replica has one.
func (s *Scheduler) keep(run jobs.Run, outcome jobs.Outcome) (kept bool) {
	if s.journal == nil {
		return false
	}
	if err := s.journal.Append(run, outcome); err != nil {
		s.log.Error("how a run ended could not be kept", "run", run.ID, "error", err)
		return false
	}
	return true
}

// replay tells the store how runs ended while it was away.
func (s *Scheduler) replay(ctx context.Context) {
	if s.journal == nil {
		return
	}
	err := s.journal.Replay(ctx, func(ctx context.Context, run jobs.Run, outcome jobs.Outcome) error {
		ended, err := s.store.Finish(ctx, run, outcome)
		switch {
		case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrNotFound):
			s.log.Error("the store has given up on a run that ended while it was away",
				"run", run.ID, "job", run.Job, "status", outcome.Status, "reason", outcome.Reason, "error", err)
			return nil
		case err != nil:
			return err
		}
		s.log.Info("run ended while the store was away", "run", run.ID, "status", ended.Status, "reason", ended.Reason)
		s.ended(ended)
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrAway) && ctx.Err() == nil {
		s.log.Error("the journal was not replayed", "error", err)
	}
}

// reapGrace is how long a replica that could not reach the store waits with closing
// the runs of others, once it can: they could not reach it either, and have in
// their journals how these runs ended.
const reapGrace = 15 * time.Second

// reap closes runs whose replica is gone.
func (s *Scheduler) reap(ctx context.Context) {
	var closed []jobs.Run
	var err error
	if time.Now().Before(s.reapFrom) {
		_, err = s.store.Now(ctx)
	} else {
		closed, err = s.store.Reap(ctx)
	}
	if errors.Is(err, store.ErrAway) {
		s.reapFrom = time.Now().Add(reapGrace)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("lost runs were not looked for", "error", err)
	}
	for _, run := range closed {
		s.log.Warn("run was lost with its replica", "run", run.ID, "job", run.Job, "lost", run.Replica)
		s.ended(run)
	}
}
