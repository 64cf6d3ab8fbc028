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
		if run, err = repeated(ctx, tx, c, now); err != nil || run.ID != 0 {
			return err
		}
		if err := free(ctx, tx, c, now); err != nil {
			return err
		}
		run, err = grant(ctx, tx, c, now)
		return err
	})
	if err != nil {
		return jobs.Run{}, err
	}
	return run, nil
}

// repeated returns the run that a claim with the same token began, with a new
// lease, or why the tick cannot be had any more, or no run.
func repeated(ctx context.Context, tx *sql.Tx, c store.Claim, now time.Time) (run jobs.Run, err error) {
	t, e := c.Tick, c.Evidence
	ours, err := many(ctx, tx, scanRows, `
		UPDATE runs SET lease_until = ?, votes = ?, masters = ?, granted_us = ?
		 WHERE job = ? AND due = ? AND attempt = ? AND status = 'running' AND token = ? AND token <> ''
		RETURNING `+columns, instant(now.Add(c.Lease)), e.Votes, e.Masters, e.Granted.Microseconds(),
		t.Job.Name, instant(t.Due), t.Attempt, store.Text(c.Token))
	if err != nil {
		return run, err
	}
	if len(ours) > 0 {
		return ours[0], nil
	}
	same, err := many(ctx, tx, scanRows, selectRuns+` WHERE job = ? AND due = ? AND attempt = ?`, t.Job.Name, instant(t.Due), t.Attempt)
	if err == nil && len(same) > 0 {
		err = fmt.Errorf("%s: %w: run %d of replica %q, %s", t, store.ErrClaimed, same[0].ID, same[0].Replica, same[0].Status)
	}
	return run, err
}

// free says what is in the way of a claim, and closes it where its lease has ended.
func free(ctx context.Context, tx *sql.Tx, c store.Claim, now time.Time) error {
	if err := active(ctx, tx, c.Revision); err != nil {
		return fmt.Errorf("%s: %w", c.Tick, err)
	}
	held, err := many(ctx, tx, scanRows, selectRuns+` WHERE lock = ? AND status = 'running'`, c.Tick.Lock())
	if err != nil {
		return err
	}
	for _, run := range held {
		if run.LeaseUntil.After(now) {
			return fmt.Errorf("%s: %w: run %d of replica %q holds %q until %s",
				c.Tick, store.ErrOverlap, run.ID, run.Replica, run.Lock, run.LeaseUntil.Format(time.RFC3339Nano))
		}
		if _, err := lose(ctx, tx, run, now); err != nil {
			return err
		}
	}
	return nil
}

// grant inserts the run, and so mints the fence.
func grant(ctx context.Context, tx *sql.Tx, c store.Claim, now time.Time) (jobs.Run, error) {
	t, e := c.Tick, c.Evidence
	return scanRun(tx.QueryRowContext(ctx, `
		INSERT INTO runs (job, due, attempt, "trigger", status, lock, replica, revision, token, started, lease_until,
		                  votes, masters, granted_us, lowest_us, left_us, extensions)
		VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		RETURNING `+columns,
		t.Job.Name, instant(t.Due), t.Attempt, string(t.Trigger), t.Lock(), store.Text(c.Replica), store.Text(c.Revision), store.Text(c.Token),
		instant(now), instant(now.Add(c.Lease)),
		e.Votes, e.Masters, e.Granted.Microseconds(), e.Lowest.Microseconds(), e.Left.Microseconds(), e.Extensions))
}

// lose closes a running run whose lease has ended.
func lose(ctx context.Context, tx *sql.Tx, run jobs.Run, now time.Time) (jobs.Run, error) {
	text := fmt.Sprintf("replica %s did not renew its lease, which ended at %s: nobody can say how far the run got",
		run.Replica, run.LeaseUntil.Format("2006-01-02T15:04:05.000Z"))
	return scanRun(tx.QueryRowContext(ctx, `
		UPDATE runs SET status = 'unknown', reason = 'replica_lost', error = ?, finished = ?, token = ''
		 WHERE id = ? AND status = 'running'
		RETURNING `+columns, text, instant(now), run.ID))
}

func (s *Store) Renew(ctx context.Context, replica string, runs ...store.Renewal) (lost []int64, err error) {
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
		for _, r := range runs {
			result, err := renew.ExecContext(ctx, instant(now.Add(r.Lease)), r.Run, store.Text(replica))
			if err != nil {
				return err
			}
			if n, _ := result.RowsAffected(); n == 0 { // this driver always knows
				lost = append(lost, r.Run)
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
			UPDATE runs SET status = ?, reason = ?, error = ?, finished = ?, token = '', lowest_us = ?, left_us = ?, extensions = ?
			 WHERE id = ? AND due = ? AND id = ? AND status = 'running'
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
		return jobs.Run{}, fmt.Errorf("finish of run %d under fence %d: %w: it is %s(%s)",
			run.ID, run.Fence, store.ErrFenced, was.Status, was.Reason)
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
