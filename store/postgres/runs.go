package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"quorate/jobs"
	"quorate/store"
)

// columns of r, a row of quorate.runs. The lease comes behind them: where it
// stands depends on whether the run still runs.
const columns = `r.id, r.job, r.due, r.attempt, r.trigger, r.status, r.reason, r.error, r.lock, r.replica, r.revision,
	r.started, r.finished, r.votes, r.masters, r.granted_us, r.lowest_us, r.left_us, r.extensions`

const selectRuns = `SELECT ` + columns + `, coalesce(l.lease_until, r.lease_until)
	FROM quorate.runs r LEFT JOIN quorate.locks l ON r.status = 'running' AND l.lock = r.lock AND l.run = r.id`

// scanRun reads the columns and the lease. The fence of a run is its id.
func scanRun(row pgx.CollectableRow) (r jobs.Run, err error) {
	var started, finished, lease *time.Time
	var granted, lowest, left int64
	e := &r.Evidence
	err = row.Scan(&r.ID, &r.Job, &r.Due, &r.Attempt, &r.Trigger, &r.Status, &r.Reason, &r.Error,
		&r.Lock, &r.Replica, &r.Revision, &started, &finished,
		&e.Votes, &e.Masters, &granted, &lowest, &left, &e.Extensions, &lease)
	if started != nil {
		r.Fence = jobs.Fence(r.ID)
	}
	r.Started, r.Finished, r.LeaseUntil = zeroed(started), zeroed(finished), zeroed(lease)
	e.Granted, e.Lowest, e.Left = micros(granted), micros(lowest), micros(left)
	return r, err
}

func zeroed(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func (s *Store) Run(ctx context.Context, id int64) (jobs.Run, error) {
	list, err := many(ctx, s, scanRun, selectRuns+` WHERE r.id = $1`, id)
	if err != nil {
		return jobs.Run{}, err
	}
	if len(list) == 0 {
		return jobs.Run{}, fmt.Errorf("run %d: %w", id, store.ErrNotFound)
	}
	run := list[0]
	run.Steps, err = many(ctx, s, scanStep, `
		SELECT s.idx, s.name, s.kind, s.status, s.started, s.finished, s.rows, coalesce(o.text, ''), s.error
		  FROM quorate.steps s LEFT JOIN quorate.output o ON o.run = s.run AND o.due = s.due AND o.idx = s.idx
		 WHERE s.run = $1 AND s.due = $2
		 ORDER BY s.idx`, run.ID, run.Due)
	return run, err
}

func scanStep(row pgx.CollectableRow) (s jobs.StepRun, err error) {
	var started, finished *time.Time
	err = row.Scan(&s.Index, &s.Name, &s.Kind, &s.Status, &started, &finished, &s.Rows, &s.Output, &s.Error)
	s.Started, s.Finished = zeroed(started), zeroed(finished)
	return s, err
}

func (s *Store) Runs(ctx context.Context, f store.Filter) ([]jobs.Run, error) {
	var where []string
	var args []any
	filter := func(clause string, arg any) {
		args = append(args, arg)
		where = append(where, fmt.Sprintf(clause, len(args)))
	}
	if f.Job != "" {
		filter("r.job = $%d", store.Text(f.Job))
	}
	switch f.Status {
	case "":
	case jobs.Running:
		where = append(where, "(r.id, r.due) IN (SELECT l.run, l.due FROM quorate.locks l WHERE l.run IS NOT NULL)")
	case jobs.Succeeded:
		where = append(where, "r.status = 'succeeded'")
	case jobs.Failed, jobs.Skipped, jobs.Missed, jobs.Unknown:
		filter("r.trouble = $%d", string(f.Status))
	default:
		return nil, nil // no run has such a status
	}
	if !f.Since.IsZero() {
		filter("r.due >= $%d", store.Instant(f.Since))
	}
	if f.Before > 0 {
		filter("r.id < $%d", f.Before)
	}
	order := "DESC"
	if f.After > 0 {
		order = "ASC"
		newest, err := s.settled(ctx, f.After)
		if err != nil || newest <= f.After {
			return nil, err
		}
		filter("r.id > $%d", f.After)
		filter("r.id <= $%d", newest)
	}
	query := selectRuns
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	return many(ctx, s, scanRun, fmt.Sprintf("%s ORDER BY r.id %s LIMIT %d", query, order, f.Count()), args...)
}

// settled returns the newest id of which it is certain that all smaller ones can
// be seen. Ids are drawn before their rows commit, so a follower that took what
// is there would pass over the row that commits late, and never see it. Where
// nothing is new it costs nobody anything; else writers wait for each other for
// as long as those under way need.
func (s *Store) settled(ctx context.Context, after int64) (int64, error) {
	newest, err := one(ctx, s, pgx.RowTo[int64], `SELECT last_value FROM quorate.run_id`)
	if err != nil || newest <= after {
		return newest, err
	}
	if _, err := s.pool.Exec(ctx, `SELECT pg_advisory_xact_lock(8173254061)`); err != nil {
		return 0, s.fault(ctx, err)
	}
	return newest, nil
}

func (s *Store) Latest(ctx context.Context) (map[string]jobs.Run, error) {
	// From one job's name to the next along the index: as many steps as there are
	// jobs, however many runs they have.
	list, err := many(ctx, s, scanRun, `
		WITH RECURSIVE names AS (
			SELECT min(job) AS job FROM quorate.runs
			UNION ALL
			SELECT (SELECT min(r.job) FROM quorate.runs r WHERE r.job > n.job) FROM names n WHERE n.job IS NOT NULL
		)
		SELECT `+columns+`, coalesce(l.lease_until, r.lease_until)
		  FROM names n
		 CROSS JOIN LATERAL (SELECT * FROM quorate.runs r WHERE r.job = n.job ORDER BY r.id DESC LIMIT 1) r
		  LEFT JOIN quorate.locks l ON r.status = 'running' AND l.lock = r.lock AND l.run = r.id`)
	if err != nil {
		return nil, err
	}
	latest := make(map[string]jobs.Run, len(list))
	for _, run := range list {
		latest[run.Job] = run
	}
	return latest, nil
}

func (s *Store) Dues(ctx context.Context, job string, from, to time.Time) ([]time.Time, error) {
	return many(ctx, s, pgx.RowTo[time.Time],
		`SELECT DISTINCT due FROM quorate.runs WHERE job = $1 AND due BETWEEN $2 AND $3 ORDER BY due`,
		store.Text(job), store.Instant(from), store.Instant(to))
}
