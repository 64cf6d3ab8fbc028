package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"quorate/jobs"
	"quorate/store"
)

// A claimed is what quorate.claim answers to one wish, and the run that it concerns.
type claimed struct {
	Wanted     string
	Verdict    string
	ID         *int64
	Status     *jobs.Status
	Replica    *string
	Lock       *string
	Started    *time.Time
	LeaseUntil *time.Time
}

func (s *Store) Claim(ctx context.Context, c store.Claim) (jobs.Run, error) {
	if err := c.Check(); err != nil {
		return jobs.Run{}, err
	}
	if c.Token == "" {
		c.Token = rand.Text() // we may have to ask again ourselves
	}
	a, err := s.claims.do(ctx, c)
	if err != nil {
		return jobs.Run{}, s.fault(ctx, err)
	}
	t := c.Tick
	switch a.Verdict {
	case "granted":
		return jobs.Run{
			ID: *a.ID, Job: t.Job.Name, Due: store.Instant(t.Due), Attempt: t.Attempt, Trigger: t.Trigger, Status: jobs.Running,
			Lock: t.Lock(), Fence: jobs.Fence(*a.ID), Replica: store.Text(c.Replica), Revision: store.Text(c.Revision),
			Started: *a.Started, LeaseUntil: *a.LeaseUntil, Evidence: c.Evidence,
		}, nil
	case "claimed":
		return jobs.Run{}, fmt.Errorf("%s: %w: run %d of replica %q, %s", t, store.ErrClaimed, *a.ID, *a.Replica, *a.Status)
	case "revision":
		return jobs.Run{}, fmt.Errorf("%s: %w: not %q", t, store.ErrRevision, c.Revision)
	}
	return jobs.Run{}, fmt.Errorf("%s: %w: run %d of replica %q holds %q until %s",
		t, store.ErrOverlap, *a.ID, *a.Replica, *a.Lock, a.LeaseUntil.Format(time.RFC3339Nano))
}

const claim = `SELECT * FROM quorate.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

// sendClaims claims many ticks in one statement.
func (s *Store) sendClaims(ctx context.Context, calls []store.Claim, patient bool) ([]claimed, error) {
	rows, err := again(ctx, func() ([]claimed, error) {
		rows, _ := s.pool.Query(ctx, claim, patience(patient),
			column(calls, func(c store.Claim) string { return c.Tick.Job.Name }),
			column(calls, func(c store.Claim) time.Time { return store.Instant(c.Tick.Due) }),
			column(calls, func(c store.Claim) int { return c.Tick.Attempt }),
			column(calls, func(c store.Claim) string { return string(c.Tick.Trigger) }),
			column(calls, func(c store.Claim) string { return c.Tick.Lock() }),
			column(calls, func(c store.Claim) string { return store.Text(c.Replica) }),
			column(calls, func(c store.Claim) string { return store.Text(c.Revision) }),
			column(calls, func(c store.Claim) string { return store.Text(c.Token) }),
			column(calls, func(c store.Claim) time.Duration { return c.Lease }),
			column(calls, func(c store.Claim) int { return c.Evidence.Votes }),
			column(calls, func(c store.Claim) int { return c.Evidence.Masters }),
			column(calls, func(c store.Claim) int64 { return c.Evidence.Granted.Microseconds() }),
			column(calls, func(c store.Claim) int64 { return c.Evidence.Lowest.Microseconds() }),
			column(calls, func(c store.Claim) int64 { return c.Evidence.Left.Microseconds() }),
			column(calls, func(c store.Claim) int { return c.Evidence.Extensions }))
		return pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
	})
	return inOrder(calls, rows, err, lockOf, func(a claimed) any { return a.Wanted })
}

func lockOf(c store.Claim) any { return c.Tick.Lock() }

// column is one field of many calls, as a statement takes them.
func column[C, T any](calls []C, field func(C) T) []T {
	values := make([]T, len(calls))
	for i, c := range calls {
		values[i] = field(c)
	}
	return values
}

// inOrder brings answers into the order of the calls: both name what they are about.
func inOrder[C, A any](calls []C, answers []A, err error, ofCall func(C) any, ofAnswer func(A) any) ([]A, error) {
	if err != nil {
		return nil, err
	}
	about := make(map[any]A, len(answers))
	for _, a := range answers {
		about[ofAnswer(a)] = a
	}
	ordered := make([]A, len(calls))
	for i, c := range calls {
		a, ok := about[ofCall(c)]
		if !ok {
			return nil, fmt.Errorf("%d calls and %d answers, none for %v", len(calls), len(answers), ofCall(c))
		}
		ordered[i] = a
	}
	return ordered, nil
}

// patience is how long a call waits for rows that another has locked. Where it
// carries others it must not make them wait; alone it waits as long as the
// connection says.
func patience(patient bool) string {
	if patient {
		return ""
	}
	return "250ms"
}

// again asks once more, and after a moment a third time, where nobody answered: a
// connection that was cut is replaced, and whether the last call was heard before
// it was cut is found out by asking. So it is only for what may be said twice.
func again[T any](ctx context.Context, ask func() (T, error)) (answer T, err error) {
	for _, pause := range []time.Duration{0, 50 * time.Millisecond} {
		if answer, err = ask(); !isAway(err) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(pause):
		}
	}
	return ask()
}

// Renew may be said twice, too.
func (s *Store) Renew(ctx context.Context, replica string, runs ...store.Renewal) ([]int64, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	renewed, err := again(ctx, func() ([]int64, error) {
		rows, _ := s.pool.Query(ctx, `SELECT quorate.renew($1, $2, $3, $4)`, store.Text(replica),
			column(runs, func(r store.Renewal) int64 { return r.Run }),
			column(runs, func(r store.Renewal) string { return r.Lock }),
			column(runs, func(r store.Renewal) time.Duration { return r.Lease }))
		return pgx.CollectRows(rows, pgx.RowTo[int64])
	})
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	ours := make(map[int64]bool, len(renewed))
	for _, id := range renewed {
		ours[id] = true
	}
	var lost []int64
	for _, r := range runs {
		if !ours[r.Run] {
			lost = append(lost, r.Run)
		}
	}
	return lost, nil
}
