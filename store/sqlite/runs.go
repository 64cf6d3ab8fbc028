package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"quorate/jobs"
	"quorate/store"
)

const columns = `id, job, due, attempt, "trigger", status, reason, error, lock, replica, revision,
	started, finished, lease_until, votes, masters, granted_us, lowest_us, left_us, extensions`

const selectRuns = `SELECT ` + columns + ` FROM runs`

// A row is one of many, or a single one.
type row interface{ Scan(...any) error }

func scanRun(row row) (r jobs.Run, err error) {
	var due, started, finished, lease instant
	var granted, lowest, left int64
	e := &r.Evidence
	err = row.Scan(&r.ID, &r.Job, &due, &r.Attempt, &r.Trigger, &r.Status, &r.Reason, &r.Error,
		&r.Lock, &r.Replica, &r.Revision, &started, &finished, &lease,
		&e.Votes, &e.Masters, &granted, &lowest, &left, &e.Extensions)
	r.Due, r.Started, r.Finished, r.LeaseUntil = time.Time(due), time.Time(started), time.Time(finished), time.Time(lease)
	if started != (instant{}) {
		r.Fence = jobs.Fence(r.ID) // so it is: ids only grow
	}
	e.Granted, e.Lowest, e.Left = micros(granted), micros(lowest), micros(left)
	return r, err
}

func scanRows(rows *sql.Rows) (jobs.Run, error) { return scanRun(rows) }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func (s *Store) Run(ctx context.Context, id int64) (jobs.Run, error) {
	list, err := many(ctx, s.read, scanRows, selectRuns+` WHERE id = ?`, id)
	if err != nil {
		return jobs.Run{}, s.fault(ctx, err)
	}
	if len(list) == 0 {
		return jobs.Run{}, fmt.Errorf("run %d: %w", id, store.ErrNotFound)
	}
	run := list[0]
	run.Steps, err = many(ctx, s.read, scanStep, `
		SELECT s.idx, s.name, s.kind, s.status, s.started, s.finished, s.rows, coalesce(o.text, ''), s.error
		  FROM steps s LEFT JOIN output o ON o.run = s.run AND o.idx = s.idx
		 WHERE s.run = ?
		 ORDER BY s.idx`, id)
	return run, s.fault(ctx, err)
}

func scanStep(rows *sql.Rows) (s jobs.StepRun, err error) {
	var started, finished instant
	err = rows.Scan(&s.Index, &s.Name, &s.Kind, &s.Status, &started, &finished, &s.Rows, &s.Output, &s.Error)
	s.Started, s.Finished = time.Time(started), time.Time(finished)
	return s, err
}

func (s *Store) Runs(ctx context.Context, f store.Filter) ([]jobs.Run, error) {
	var where []string
	var args []any
	filter := func(clause string, arg any) {
		where, args = append(where, clause), append(args, arg)
	}
	if f.Job != "" {
		filter("job = ?", f.Job)
	}
	if f.Status != "" {
		filter("status = ?", string(f.Status))
	}
	if !f.Since.IsZero() {
		filter("due >= ?", instant(f.Since))
	}
	if f.Before > 0 {
		filter("id < ?", f.Before)
	}
	order := "DESC"
	if f.After > 0 { // ids are drawn and committed in one turn: none comes late
		order = "ASC"
		filter("id > ?", f.After)
	}
	query := selectRuns
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	list, err := many(ctx, s.read, scanRows, fmt.Sprintf("%s ORDER BY id %s LIMIT %d", query, order, f.Count()), args...)
	return list, s.fault(ctx, err)
}

func (s *Store) Latest(ctx context.Context) (map[string]jobs.Run, error) {
	// From one job's name to the next along the index: as many steps as there are
	// jobs, however many runs they have.
	list, err := many(ctx, s.read, scanRows, `
		WITH RECURSIVE names AS (
			SELECT min(job) AS job FROM runs
			UNION ALL
			SELECT (SELECT min(r.job) FROM runs r WHERE r.job > n.job) FROM names n WHERE n.job IS NOT NULL
		)
		SELECT `+columns+` FROM runs
		 WHERE id IN (SELECT (SELECT r.id FROM runs r WHERE r.job = n.job ORDER BY r.id DESC LIMIT 1) FROM names n)`)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	latest := make(map[string]jobs.Run, len(list))
	for _, run := range list {
		latest[run.Job] = run
	}
	return latest, nil
}

func (s *Store) Dues(ctx context.Context, job string, from, to time.Time) ([]time.Time, error) {
	list, err := many(ctx, s.read, func(rows *sql.Rows) (time.Time, error) { return scanInstant(rows) },
		`SELECT DISTINCT due FROM runs WHERE job = ? AND due BETWEEN ? AND ? ORDER BY due`, job, instant(from), instant(to))
	return list, s.fault(ctx, err)
}
