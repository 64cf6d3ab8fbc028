package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"quorate/jobs"
	"quorate/store"
)

// An ending is a run and how it ended, fit to be kept.
type ending struct {
	run     jobs.Run
	outcome jobs.Outcome
}

// An ended is what quorate.finish answers to one ending.
type ended struct {
	ID         int64
	Verdict    string
	Status     *jobs.Status
	Reason     *jobs.Reason
	Finished   *time.Time
	LeaseUntil *time.Time
}

func (s *Store) Finish(ctx context.Context, run jobs.Run, o jobs.Outcome) (jobs.Run, error) {
	if err := store.CheckOutcome(run, o); err != nil {
		return jobs.Run{}, err
	}
	run.Due = store.Instant(run.Due)
	o.Error, o.Steps = store.Text(o.Error), store.Steps(o.Steps)
	a, err := s.finishes.do(ctx, ending{run, o})
	switch {
	case err != nil:
		return jobs.Run{}, s.fault(ctx, err)
	case a.Verdict == "none":
		return jobs.Run{}, fmt.Errorf("finish of run %d: %w", run.ID, store.ErrNotFound)
	case a.Verdict == "fenced":
		return jobs.Run{}, fmt.Errorf("finish of run %d under fence %d: %w: it is %s(%s)", run.ID, run.Fence, store.ErrFenced, *a.Status, *a.Reason)
	}
	run.Status, run.Reason, run.Error, run.Steps = o.Status, o.Reason, o.Error, o.Steps
	run.Finished, run.LeaseUntil = *a.Finished, *a.LeaseUntil
	run.Evidence.Lowest, run.Evidence.Left, run.Evidence.Extensions = o.Evidence.Lowest, o.Evidence.Left, o.Evidence.Extensions
	return run, nil
}

const finish = `SELECT * FROM quorate.finish($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
	$12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)`

// sendFinishes finishes many runs in one statement.
func (s *Store) sendFinishes(ctx context.Context, calls []ending, patient bool) ([]ended, error) {
	var steps []stepOf
	for _, c := range calls {
		for _, step := range c.outcome.Steps {
			steps = append(steps, stepOf{c.run, step})
		}
	}
	rows, err := again(ctx, func() ([]ended, error) {
		rows, _ := s.pool.Query(ctx, finish, patience(patient),
			column(calls, func(c ending) int64 { return c.run.ID }),
			column(calls, func(c ending) time.Time { return c.run.Due }),
			column(calls, func(c ending) int64 { return int64(c.run.Fence) }),
			column(calls, func(c ending) string { return c.run.Lock }),
			column(calls, func(c ending) string { return string(c.outcome.Status) }),
			column(calls, func(c ending) string { return string(c.outcome.Reason) }),
			column(calls, func(c ending) string { return c.outcome.Error }),
			column(calls, func(c ending) int64 { return c.outcome.Evidence.Lowest.Microseconds() }),
			column(calls, func(c ending) int64 { return c.outcome.Evidence.Left.Microseconds() }),
			column(calls, func(c ending) int { return c.outcome.Evidence.Extensions }),
			column(steps, func(s stepOf) int64 { return s.run.ID }),
			column(steps, func(s stepOf) time.Time { return s.run.Due }),
			column(steps, func(s stepOf) int { return s.Index }),
			column(steps, func(s stepOf) string { return s.Name }),
			column(steps, func(s stepOf) string { return s.Kind }),
			column(steps, func(s stepOf) string { return string(s.Status) }),
			column(steps, func(s stepOf) *time.Time { return instant(s.Started) }),
			column(steps, func(s stepOf) *time.Time { return instant(s.Finished) }),
			column(steps, func(s stepOf) int64 { return s.Rows }),
			column(steps, func(s stepOf) string { return s.Error }),
			column(steps, func(s stepOf) string { return s.Output }))
		return pgx.CollectRows(rows, pgx.RowToStructByPos[ended])
	})
	return inOrder(calls, rows, err, runOf, func(a ended) any { return a.ID })
}

func runOf(e ending) any { return e.run.ID }

// A stepOf is a step with the run that it belongs to.
type stepOf struct {
	run jobs.Run
	jobs.StepRun
}

// instant is NULL for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
