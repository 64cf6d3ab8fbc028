package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"quorate/jobs"
	"quorate/store"
)

func (s *Store) Claim(ctx context.Context, c store.Claim) (run jobs.Run, err error) {
	if err := c.Check(); err != nil {
		return jobs.Run{}, err
	}
	err = s.turn(ctx, func(tx *sql.Tx, now time.Time) error {
		t := c.Tick
		same, err := many(ctx, tx, scanRows, selectRuns+` WHERE job = ? AND due = ? AND attempt = ?`, t.Job.Name, instant(t.Due), t.Attempt)
		if err != nil {
			return err
		}
		if len(same) > 0 {
			return fmt.Errorf("%s: %w: run %d of replica %q, %s", t, store.ErrClaimed, same[0].ID, same[0].Replica, same[0].Status)
		}
		held, err := many(ctx, tx, scanRows, selectRuns+` WHERE lock = ? AND status = 'running'`, t.Lock())
		if err != nil {
			return err
		}
		if len(held) > 0 && held[0].LeaseUntil.After(now) {
			return fmt.Errorf("%s: %w: run %d of replica %q holds %q until %s",
				t, store.ErrOverlap, held[0].ID, held[0].Replica, held[0].Lock, held[0].LeaseUntil.Format(time.RFC3339Nano))
		}
		for _, late := range held {
			if _, err := lose(ctx, tx, late, now); err != nil {
				return err
			}
		}
		run, err = grant(ctx, tx, c, now)
		return err
	})
	if err != nil {
		return jobs.Run{}, err
	}
	return run, nil
}

// grant mints the fence and inserts the run.
func grant(ctx context.Context, tx *sql.Tx, c store.Claim, now time.Time) (jobs.Run, error) {
	t, e := c.Tick, c.Evidence
	var fence int64
	err := tx.QueryRowContext(ctx, `
		INSERT INTO fences (lock, fence) VALUES (?, 1)
		    ON CONFLICT (lock) DO UPDATE SET fence = fence + 1
		RETURNING fence`, t.Lock()).Scan(&fence)
	if err != nil {
		return jobs.Run{}, err
	}
	return scanRun(tx.QueryRowContext(ctx, `
		INSERT INTO runs (job, due, attempt, "trigger", status, lock, fence, replica, revision, started, lease_until,
		                  votes, masters, granted_us, lowest_us, left_us, extensions)
		VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		RETURNING `+columns,
		t.Job.Name, instant(t.Due), t.Attempt, string(t.Trigger), t.Lock(), fence, store.Text(c.Replica), store.Text(c.Revision),
		instant(now), instant(now.Add(c.Lease)),
		e.Votes, e.Masters, e.Granted.Microseconds(), e.Lowest.Microseconds(), e.Left.Microseconds(), e.Extensions))
}

// lose closes a running run whose lease has ended.
func lose(ctx context.Context, tx *sql.Tx, run jobs.Run, now time.Time) (jobs.Run, error) {
	text := fmt.Sprintf("replica %s did not renew its lease, which ended at %s: nobody can say how far the run got",
		run.Replica, run.LeaseUntil.Format("2006-01-02T15:04:05.000Z"))
	return scanRun(tx.QueryRowContext(ctx, `
		UPDATE runs SET status = 'unknown', reason = 'replica_lost', error = ?, finished = ?
		 WHERE id = ? AND status = 'running'
		RETURNING `+columns, text, instant(now), run.ID))
}

func (s *Store) Renew(ctx context.Context, replica string, runs []int64, lease time.Duration) (lost []int64, err error) {
	if len(runs) == 0 {
		return nil, nil
	}
	err = s.turn(ctx, func(tx *sql.Tx, now time.Time) error {
		lost = nil
		renew, err := tx.PrepareContext(ctx, `UPDATE runs SET lease_until = ? WHERE id = ? AND replica = ? AND status = 'running'`)
		if err != nil {
			return err
		}
		defer renew.Close()
		for _, id := range runs {
			result, err := renew.ExecContext(ctx, instant(now.Add(lease)), id, store.Text(replica))
			if err != nil {
				return err
			}
			if n, _ := result.RowsAffected(); n == 0 { // this driver always knows
				lost = append(lost, id)
			}
		}
		return nil
	})
	return lost, err
}

func (s *Store) Finish(ctx context.Context, run jobs.Run, o jobs.Outcome) (done jobs.Run, err error) {
	if err := store.CheckOutcome(run, o); err != nil {
		return jobs.Run{}, err
	}
	steps := store.Steps(o.Steps)
	err = s.turn(ctx, func(tx *sql.Tx, now time.Time) error {
		e, text := o.Evidence, store.Text(o.Error)
		ended, err := many(ctx, tx, scanRows, `
			UPDATE runs SET status = ?, reason = ?, error = ?, finished = ?, lowest_us = ?, left_us = ?, extensions = ?
			 WHERE id = ? AND due = ? AND fence = ? AND status = 'running'
			RETURNING `+columns,
			string(o.Status), string(o.Reason), text, instant(now), e.Lowest.Microseconds(), e.Left.Microseconds(), e.Extensions,
			run.ID, instant(run.Due), int64(run.Fence))
		if err != nil {
			return err
		}
		if len(ended) == 0 {
			done, err = finished(ctx, tx, run, o, text)
			return err
		}
		done = ended[0]
		return insertSteps(ctx, tx, run.ID, steps)
	})
	if err != nil {
		return jobs.Run{}, err
	}
	done.Steps = steps
	return done, nil
}

// finished returns a run that was finished in just this way before.
func finished(ctx context.Context, tx *sql.Tx, run jobs.Run, o jobs.Outcome, text string) (jobs.Run, error) {
	there, err := many(ctx, tx, scanRows, selectRuns+` WHERE id = ? AND due = ?`, run.ID, instant(run.Due))
	if err != nil {
		return jobs.Run{}, err
	}
	if len(there) == 0 {
		return jobs.Run{}, fmt.Errorf("finish of run %d: %w", run.ID, store.ErrNotFound)
	}
	was := there[0]
	if was.Fence != run.Fence || was.Status != o.Status || was.Reason != o.Reason || was.Error != text {
		return jobs.Run{}, fmt.Errorf("finish of run %d under fence %d: %w: it is %s(%s) under fence %d",
			run.ID, run.Fence, store.ErrFenced, was.Status, was.Reason, was.Fence)
	}
	return was, nil
}

func insertSteps(ctx context.Context, tx *sql.Tx, run int64, steps []jobs.StepRun) error {
	for _, s := range steps {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO steps (run, idx, name, kind, status, started, finished, rows, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			run, s.Index, s.Name, s.Kind, string(s.Status), instant(s.Started), instant(s.Finished), s.Rows, s.Error)
		if err != nil {
			return err
		}
		if s.Output == "" {
			continue
		}
		if _, err = tx.ExecContext(ctx, `INSERT INTO output (run, idx, text) VALUES (?, ?, ?)`, run, s.Index, s.Output); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) Record(ctx context.Context, ended ...jobs.Run) (written []jobs.Run, err error) {
	if len(ended) == 0 {
		return nil, nil
	}
	for _, r := range ended {
		if err := store.CheckEnded(r); err != nil {
			return nil, err
		}
	}
	err = s.turn(ctx, func(tx *sql.Tx, now time.Time) error {
		written = nil
		insert, err := tx.PrepareContext(ctx, `
			INSERT INTO runs (job, due, attempt, "trigger", status, reason, error, lock, replica, revision, finished)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			    ON CONFLICT DO NOTHING
			RETURNING `+columns)
		if err != nil {
			return err
		}
		defer insert.Close()
		for _, r := range ended {
			rows, err := insert.QueryContext(ctx,
				r.Job, instant(r.Due), r.Attempt, string(r.Trigger), string(r.Status), string(r.Reason), store.Text(r.Error),
				store.Text(r.Lock), store.Text(r.Replica), store.Text(r.Revision), instant(now))
			if err != nil {
				return err
			}
			row, err := collect(rows, scanRows)
			if err != nil {
				return err
			}
			written = append(written, row...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return written, nil
}

func (s *Store) Reap(ctx context.Context) (lost []jobs.Run, err error) {
	err = s.turn(ctx, func(tx *sql.Tx, now time.Time) error {
		lost = nil
		late, err := many(ctx, tx, scanRows, selectRuns+` WHERE status = 'running' AND lease_until <= ? ORDER BY id`, instant(now))
		if err != nil {
			return err
		}
		for _, run := range late {
			closed, err := lose(ctx, tx, run, now)
			if err != nil {
				return err
			}
			lost = append(lost, closed)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}
