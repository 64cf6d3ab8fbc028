package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"quorate/jobs"
	"quorate/store"
)

// A verdict is what a function of 0002 decided, and the run that it concerns.
type verdict struct {
	word string
	run  jobs.Run
}

func scanVerdict(row pgx.CollectableRow) (v verdict, err error) {
	v.run, err = scan(row, &v.word)
	return v, err
}

// judged wraps the call of a function that returns verdicts.
func judged(call string) string {
	return `SELECT v.verdict, ` + columns + `, r.lease_until FROM ` + call + ` v, LATERAL (SELECT (v.run).*) r`
}

var claim = judged(`quorate.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`)

func (s *Store) Claim(ctx context.Context, c store.Claim) (jobs.Run, error) {
	if err := c.Check(); err != nil {
		return jobs.Run{}, err
	}
	t, e := c.Tick, c.Evidence
	v, err := one(ctx, s, scanVerdict, claim,
		t.Job.Name, store.Instant(t.Due), t.Attempt, string(t.Trigger), t.Lock(), store.Text(c.Replica), store.Text(c.Revision),
		c.Lease, e.Votes, e.Masters, e.Granted.Microseconds(), e.Lowest.Microseconds(), e.Left.Microseconds(), e.Extensions)
	if err != nil {
		return jobs.Run{}, err
	}
	switch v.word {
	case "granted":
		return v.run, nil
	case "claimed":
		return jobs.Run{}, fmt.Errorf("%s: %w: run %d of replica %q, %s", t, store.ErrClaimed, v.run.ID, v.run.Replica, v.run.Status)
	}
	return jobs.Run{}, fmt.Errorf("%s: %w: run %d of replica %q holds %q until %s",
		t, store.ErrOverlap, v.run.ID, v.run.Replica, v.run.Lock, v.run.LeaseUntil.Format(time.RFC3339Nano))
}

func (s *Store) Renew(ctx context.Context, replica string, runs []int64, lease time.Duration) ([]int64, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	renewed, err := many(ctx, s, pgx.RowTo[int64], `SELECT quorate.renew($1, $2, $3)`, store.Text(replica), runs, lease)
	if err != nil {
		return nil, err
	}
	ours := make(map[int64]bool, len(renewed))
	for _, id := range renewed {
		ours[id] = true
	}
	var lost []int64
	for _, id := range runs {
		if !ours[id] {
			lost = append(lost, id)
		}
	}
	return lost, nil
}

var finish = judged(`quorate.finish($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`)

func (s *Store) Finish(ctx context.Context, run jobs.Run, o jobs.Outcome) (jobs.Run, error) {
	if err := store.CheckOutcome(run, o); err != nil {
		return jobs.Run{}, err
	}
	e, steps := o.Evidence, store.Steps(o.Steps)
	v, err := one(ctx, s, scanVerdict, finish,
		run.ID, store.Instant(run.Due), int64(run.Fence), string(o.Status), string(o.Reason), store.Text(o.Error),
		e.Lowest.Microseconds(), e.Left.Microseconds(), e.Extensions, stepRows(steps))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return jobs.Run{}, fmt.Errorf("finish of run %d: %w", run.ID, store.ErrNotFound)
	case err != nil:
		return jobs.Run{}, err
	case v.word != "finished":
		return jobs.Run{}, fmt.Errorf("finish of run %d under fence %d: %w: it is %s(%s) under fence %d",
			run.ID, run.Fence, store.ErrFenced, v.run.Status, v.run.Reason, v.run.Fence)
	}
	v.run.Steps = steps
	return v.run, nil
}

// A stepRow is a step as quorate.finish reads it.
type stepRow struct {
	Index    int        `json:"idx"`
	Name     string     `json:"name"`
	Kind     string     `json:"kind"`
	Status   string     `json:"status"`
	Started  *time.Time `json:"started"`
	Finished *time.Time `json:"finished"`
	Rows     int64      `json:"rows"`
	Output   string     `json:"output"`
	Error    string     `json:"error"`
}

func stepRows(steps []jobs.StepRun) []stepRow {
	rows := make([]stepRow, 0, len(steps))
	for _, s := range steps {
		rows = append(rows, stepRow{
			s.Index, s.Name, s.Kind, string(s.Status), instant(s.Started), instant(s.Finished), s.Rows, s.Output, s.Error,
		})
	}
	return rows
}

// instant is NULL for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// An endedRow is a tick that never ran, as quorate.record reads it.
type endedRow struct {
	Job      string    `json:"job"`
	Due      time.Time `json:"due"`
	Attempt  int       `json:"attempt"`
	Trigger  string    `json:"trigger"`
	Status   string    `json:"status"`
	Reason   string    `json:"reason"`
	Error    string    `json:"error"`
	Lock     string    `json:"lock"`
	Replica  string    `json:"replica"`
	Revision string    `json:"revision"`
}

func (s *Store) Record(ctx context.Context, ended ...jobs.Run) ([]jobs.Run, error) {
	if len(ended) == 0 {
		return nil, nil
	}
	rows := make([]endedRow, 0, len(ended))
	for _, r := range ended {
		if err := store.CheckEnded(r); err != nil {
			return nil, err
		}
		rows = append(rows, endedRow{
			r.Job, store.Instant(r.Due), r.Attempt, string(r.Trigger), string(r.Status), string(r.Reason),
			store.Text(r.Error), store.Text(r.Lock), store.Text(r.Replica), store.Text(r.Revision),
		})
	}
	return many(ctx, s, scanRun, `SELECT `+columns+`, r.lease_until FROM quorate.record($1) r ORDER BY r.id`, rows)
}

// Reap makes the partitions of the months to come, too: every replica reaps each
// minute, which is as often as a calendar needs.
func (s *Store) Reap(ctx context.Context) ([]jobs.Run, error) {
	if _, err := s.pool.Exec(ctx, `SELECT quorate.make_months()`); err != nil {
		return nil, s.fault(ctx, err)
	}
	return many(ctx, s, scanRun, `SELECT `+columns+`, r.lease_until FROM quorate.reap() r ORDER BY r.id`)
}
