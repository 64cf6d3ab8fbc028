package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"quorate/jobs"
	"quorate/store"
	"quorate/store/postgres"
)

// claimAll claims and finishes n ticks at once, each under a lock of its own.
func claimAll(ctx context.Context, s *postgres.Store, n int) (errs []error) {
	errs = make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			run, err := s.Claim(ctx, claim(fmt.Sprint("job-", i)))
			if err == nil {
				_, err = s.Finish(ctx, run, jobs.Outcome{Status: jobs.Succeeded})
			}
			errs[i] = err
		})
	}
	wait.Wait()
	return errs
}

func TestAThousandClaimsAtOnceAreAHandfulOfTransactions(t *testing.T) {
	s, conn := beneath(t)
	if err := errors.Join(claimAll(t.Context(), s, 1)...); err != nil {
		t.Fatal(err)
	}
	const xid = `SELECT pg_current_xact_id()::text::bigint`
	before := value[int](t, conn, xid)
	if err := errors.Join(claimAll(t.Context(), s, 1000)...); err != nil {
		t.Fatal(err)
	}
	if used := value[int](t, conn, xid) - before; used > 100 {
		t.Errorf("%d transactions for 1000 claims and as many finishes", used)
	}
}

func TestAClaimThatTheServerRefusesFailsAlone(t *testing.T) {
	s, _ := beneath(t)
	const n = 32
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			c := claim(fmt.Sprint("job-", i))
			if i == n/2 {
				c.Tick.Job = &jobs.Job{Name: "a\x00b", Lock: "nul"} // no text for Postgres
			}
			_, errs[i] = s.Claim(t.Context(), c)
		})
	}
	wait.Wait()
	for i, err := range errs {
		if (err != nil) != (i == n/2) || errors.Is(err, store.ErrAway) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// Somebody sits on the row of one lock: who wants that one waits, and nobody else.
func TestALockThatIsStuckStandsInNobodysWay(t *testing.T) {
	s, conn := beneath(t)
	if err := errors.Join(claimAll(t.Context(), s, 8)...); err != nil { // all have their rows
		t.Fatal(err)
	}
	stuck := make(chan error, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second) // less than a row is waited for
	defer cancel()
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM quorate.locks WHERE lock = 'job-3' FOR UPDATE`); err != nil {
			return err
		}
		for range cap(stuck) {
			c := claim("job-3")
			go func() {
				_, err := s.Claim(ctx, c)
				stuck <- err
			}()
			if err := errors.Join(claimAll(ctx, s, 3)...); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	granted := 0
	for range cap(stuck) {
		if err := <-stuck; err == nil {
			granted++
		} else if !errors.Is(err, store.ErrOverlap) {
			t.Errorf("the lock was stuck: %v", err)
		}
	}
	if granted != 1 {
		t.Errorf("%d of %d claims were granted once the row was free, want 1", granted, cap(stuck))
	}
}
