package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"quorate/store"
)

func (s *Store) Register(ctx context.Context, list []store.JobState) ([]store.JobState, error) {
	if len(list) == 0 {
		return nil, nil
	}
	names, schedules := make([]string, len(list)), make([]string, len(list))
	for i, j := range list {
		names[i], schedules[i] = store.Text(j.Name), store.Text(j.Schedule)
	}
	// In the order of names, so that two replicas do not wait for each other. What
	// another one changes meanwhile is seen by the second statement.
	_, err := s.pool.Exec(ctx, `
		INSERT INTO quorate.jobs AS j (name, schedule, since)
		SELECT DISTINCT ON (n.name) n.name, n.schedule, clock_timestamp()
		  FROM unnest($1::text[], $2::text[]) AS n (name, schedule)
		 ORDER BY n.name
		    ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule, since = excluded.since
		 WHERE j.schedule <> excluded.schedule`, names, schedules)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	return many(ctx, s, pgx.RowToStructByPos[store.JobState], `
		SELECT j.name, j.schedule, j.since FROM quorate.jobs j WHERE j.name = ANY ($1) ORDER BY j.name`, names)
}

func (s *Store) Beat(ctx context.Context, r store.Replica) error {
	_, err := s.pool.Exec(ctx, `
		INSERT INTO quorate.replicas (name, revision, started, seen) VALUES ($1, $2, $3, clock_timestamp())
		    ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, started = excluded.started, seen = excluded.seen`,
		store.Text(r.Name), store.Text(r.Revision), store.Instant(r.Started))
	return s.fault(ctx, err)
}

func (s *Store) Replicas(ctx context.Context) ([]store.Replica, error) {
	return many(ctx, s, pgx.RowToStructByPos[store.Replica], `
		SELECT name, revision, started, seen, seen > clock_timestamp() - $1::interval
		  FROM quorate.replicas WHERE seen > clock_timestamp() - interval '1 day' ORDER BY name`, store.LiveFor)
}
