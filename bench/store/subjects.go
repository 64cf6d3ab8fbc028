//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"quorate/jobs"
	"quorate/store"
	"quorate/store/postgres"
)

// unnestRows is how many rows the bare batch inserts in a statement.
const unnestRows = 100

const bareTable = `CREATE TABLE IF NOT EXISTS bare (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job      text        NOT NULL,
	due      timestamptz NOT NULL,
	status   text        NOT NULL,
	started  timestamptz NOT NULL DEFAULT clock_timestamp(),
	finished timestamptz
)`

// bareSingle inserts a row a call into a table that promises nothing: one fsync
// that nobody can do without.
func bareSingle(conns int) subject {
	return subject{fmt.Sprintf("bare insert, %d connections", conns), func(ctx context.Context, b *bench) (worker, error) {
		return bare(ctx, b, conns, func(ctx context.Context, pool *pgxpool.Pool) (int, error) {
			_, err := pool.Exec(ctx, `INSERT INTO bare (job, due, status) VALUES ($1, $2, $3)`, "job", time.Now(), "running")
			return 1, err
		})
	}}
}

// bareUnnest inserts 100 rows a call: what a statement can carry at best.
func bareUnnest() subject {
	return subject{"bare insert … select unnest of 100", func(ctx context.Context, b *bench) (worker, error) {
		names, dues, status := make([]string, unnestRows), make([]time.Time, unnestRows), make([]string, unnestRows)
		for i := range names {
			names[i], dues[i], status[i] = fmt.Sprint("job-", i), time.Now(), "running"
		}
		return bare(ctx, b, 1, func(ctx context.Context, pool *pgxpool.Pool) (int, error) {
			_, err := pool.Exec(ctx, `INSERT INTO bare (job, due, status)
				SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::text[])`, names, dues, status)
			return unnestRows, err
		})
	}}
}

func bare(ctx context.Context, b *bench, conns int, insert func(context.Context, *pgxpool.Pool) (int, error)) (worker, error) {
	config, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return worker{}, err
	}
	config.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return worker{}, err
	}
	if _, err := pool.Exec(ctx, bareTable); err != nil {
		pool.Close()
		return worker{}, err
	}
	return worker{func(ctx context.Context, _, _ int) (int, time.Duration, error) {
		began := time.Now()
		rows, err := insert(ctx, pool)
		return rows, time.Since(began), err
	}, pool.Close}, nil
}

// quorateRuns claims ticks and finishes the runs: each caller has a job and a lock
// of its own, and a run has one step. Latencies are of the claim.
func quorateRuns() subject {
	return subject{"quorate, claim + finish", func(ctx context.Context, b *bench) (worker, error) {
		s, err := postgres.Open(ctx, b.url)
		if err != nil {
			return worker{}, err
		}
		began := time.Now()
		return worker{func(ctx context.Context, caller, n int) (int, time.Duration, error) {
			took, err := oneRun(ctx, s, caller, began.Add(time.Duration(n)*time.Microsecond))
			return 1, took, err
		}, s.Close}, nil
	}}
}

func oneRun(ctx context.Context, s *postgres.Store, caller int, due time.Time) (time.Duration, error) {
	name := fmt.Sprintf("job-%03d", caller)
	began := time.Now()
	run, err := s.Claim(ctx, store.Claim{
		Tick:    jobs.Tick{Job: &jobs.Job{Name: name, Lock: name}, Due: due, Attempt: 1, Trigger: jobs.TriggerSchedule},
		Replica: "replica-1", Revision: "3f2a9c41d07b", Lease: 11 * time.Second,
		Evidence: jobs.Evidence{Votes: 5, Masters: 5, Granted: 9898 * time.Millisecond, Lowest: 9898 * time.Millisecond},
	})
	took := time.Since(began)
	if err != nil {
		return took, err
	}
	_, err = s.Finish(ctx, run, jobs.Outcome{Status: jobs.Succeeded,
		Steps:    []jobs.StepRun{{Name: "count", Kind: "sql", Status: jobs.Succeeded, Started: run.Started, Finished: time.Now(), Rows: 3}},
		Evidence: jobs.Evidence{Lowest: 9801 * time.Millisecond, Left: 9801 * time.Millisecond}})
	return took, err
}
