package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"quorate/store"
)

func (s *Store) Activate(ctx context.Context, revision string) error {
	_, err := s.pool.Exec(ctx, `SELECT quorate.activate($1)`, store.Text(revision))
	return s.fault(ctx, err)
}

func (s *Store) Active(ctx context.Context) (string, error) {
	revisions, err := many(ctx, s, pgx.RowTo[string], `SELECT revision FROM quorate.active`)
	if err != nil || len(revisions) == 0 {
		return "", err
	}
	return revisions[0], nil
}

func (s *Store) Register(ctx context.Context, revision string, list ...store.JobState) ([]store.JobState, error) {
	if len(list) == 0 {
		return nil, nil
	}
	states, err := many(ctx, s, pgx.RowToStructByPos[store.JobState],
		`SELECT name, schedule, since FROM quorate.register($1, $2, $3)`, store.Text(revision),
		column(list, func(j store.JobState) string { return store.Text(j.Name) }),
		column(list, func(j store.JobState) string { return store.Text(j.Schedule) }))
	if err == nil && len(states) == 0 {
		err = fmt.Errorf("register %d jobs: %w: not %q", len(list), store.ErrRevision, revision)
	}
	return states, err
}

func (s *Store) Beat(ctx context.Context, r store.Replica) error {
	_, err := s.pool.Exec(ctx, `SELECT quorate.beat($1, $2, $3)`, store.Text(r.Name), store.Text(r.Revision), store.Instant(r.Started))
	return s.fault(ctx, err)
}

func (s *Store) Replicas(ctx context.Context) ([]store.Replica, error) {
	return many(ctx, s, pgx.RowToStructByPos[store.Replica], `
		SELECT name, revision, started, seen, seen > clock_timestamp() - $1::interval
		  FROM quorate.replicas WHERE seen > clock_timestamp() - interval '1 day' ORDER BY name`, store.LiveFor)
}
