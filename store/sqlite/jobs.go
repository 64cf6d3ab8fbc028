package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"quorate/store"
)

func (s *Store) Activate(ctx context.Context, revision string) error {
	return s.turn(ctx, func(tx *sql.Tx, now time.Time) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO active (one, revision, since) VALUES (1, ?, ?)
			    ON CONFLICT (one) DO UPDATE SET revision = excluded.revision, since = excluded.since
			 WHERE revision <> excluded.revision`, store.Text(revision), instant(now))
		return err
	})
}

func (s *Store) Active(ctx context.Context) (string, error) {
	revisions, err := many(ctx, s.read, scanOne[string], `SELECT revision FROM active`)
	if err != nil || len(revisions) == 0 {
		return "", s.fault(ctx, err)
	}
	return revisions[0], nil
}

// active is ErrRevision where another revision is the active one.
func active(ctx context.Context, tx *sql.Tx, revision string) error {
	others, err := many(ctx, tx, scanOne[string], `SELECT revision FROM active WHERE revision <> ?`, store.Text(revision))
	if err == nil && len(others) > 0 {
		err = fmt.Errorf("%w: not %q", store.ErrRevision, revision)
	}
	return err
}

func (s *Store) Register(ctx context.Context, revision string, list ...store.JobState) (states []store.JobState, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	err = s.turn(ctx, func(tx *sql.Tx, now time.Time) error {
		if err := active(ctx, tx, revision); err != nil {
			return fmt.Errorf("register %d jobs: %w", len(list), err)
		}
		states = nil
		for _, j := range list {
			_, err := tx.ExecContext(ctx, `
				INSERT INTO jobs (name, schedule, since) VALUES (?, ?, ?)
				    ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule, since = excluded.since
				 WHERE schedule <> excluded.schedule`, store.Text(j.Name), store.Text(j.Schedule), instant(now))
			if err != nil {
				return err
			}
			var since instant
			state := store.JobState{}
			err = tx.QueryRowContext(ctx, `SELECT name, schedule, since FROM jobs WHERE name = ?`, store.Text(j.Name)).
				Scan(&state.Name, &state.Schedule, &since)
			if err != nil {
				return err
			}
			state.Since = time.Time(since)
			states = append(states, state)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

func (s *Store) Beat(ctx context.Context, r store.Replica) error {
	return s.turn(ctx, func(tx *sql.Tx, now time.Time) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO replicas (name, revision, started, seen) VALUES (?, ?, ?, ?)
			    ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, started = excluded.started, seen = excluded.seen`,
			store.Text(r.Name), store.Text(r.Revision), instant(r.Started), instant(now))
		return err
	})
}

func (s *Store) Replicas(ctx context.Context) ([]store.Replica, error) {
	now := clock()
	list, err := many(ctx, s.read, func(rows *sql.Rows) (r store.Replica, err error) {
		var started, seen instant
		err = rows.Scan(&r.Name, &r.Revision, &started, &seen)
		r.Started, r.Seen = time.Time(started), time.Time(seen)
		r.Live = now.Sub(r.Seen) < store.LiveFor
		return r, err
	}, `SELECT name, revision, started, seen FROM replicas WHERE seen > ? ORDER BY name`, instant(now.AddDate(0, 0, -1)))
	return list, s.fault(ctx, err)
}
