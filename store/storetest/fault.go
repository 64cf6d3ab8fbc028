package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

var faults = []promise{
	{"a closed store is away", closedIsAway},
	{"a call that was cancelled says so, and not that the store is away", cancelled},
	{"a call without time left is away, not cancelled", noTime},
	{"after a fault the store goes on", goesOn},
}

// Calls are all the methods of a store that reach it, for tests of what they do
// when they cannot.
func Calls(s store.Store) map[string]func(ctx context.Context) error {
	run := jobs.Run{ID: 1, Job: "restock", Due: epoch, Attempt: 1, Fence: 1}
	return map[string]func(ctx context.Context) error{
		"Claim": func(ctx context.Context) error { _, err := s.Claim(ctx, want(tick("restock", 0))); return err },
		"Renew": func(ctx context.Context) error {
			_, err := s.Renew(ctx, "one", store.Renewal{Run: 1, Lock: "restock", Lease: time.Hour})
			return err
		},
		"Finish": func(ctx context.Context) error {
			_, err := s.Finish(ctx, run, jobs.Outcome{Status: jobs.Succeeded})
			return err
		},
		"Record": func(ctx context.Context) error {
			_, err := s.Record(ctx, ended("restock", 1, jobs.Missed, jobs.ReasonLate))
			return err
		},
		"Reap":   func(ctx context.Context) error { _, err := s.Reap(ctx); return err },
		"Run":    func(ctx context.Context) error { _, err := s.Run(ctx, 1); return err },
		"Runs":   func(ctx context.Context) error { _, err := s.Runs(ctx, store.Filter{}); return err },
		"Follow": func(ctx context.Context) error { _, err := s.Runs(ctx, store.Filter{After: 1}); return err },
		"Latest": func(ctx context.Context) error { _, err := s.Latest(ctx); return err },
		"Dues":   func(ctx context.Context) error { _, err := s.Dues(ctx, "restock", epoch, epoch); return err },
		"Register": func(ctx context.Context) error {
			_, err := s.Register(ctx, "r1", store.JobState{Name: "restock", Schedule: "x"})
			return err
		},
		"Activate": func(ctx context.Context) error { return s.Activate(ctx, "r1") },
		"Active":   func(ctx context.Context) error { _, err := s.Active(ctx); return err },
		"Beat":     func(ctx context.Context) error { return s.Beat(ctx, store.Replica{Name: "one", Started: epoch}) },
		"Replicas": func(ctx context.Context) error { _, err := s.Replicas(ctx); return err },
		"Now":      func(ctx context.Context) error { _, err := s.Now(ctx); return err },
		"Migrate":  func(ctx context.Context) error { return s.Migrate(ctx) },
		"Status":   func(ctx context.Context) error { _, err := s.Status(ctx); return err },
	}
}

// Away checks that every method says that the store is away, within the time that
// it was given and a little more for a machine under load.
func Away(t *testing.T, s store.Store, limit time.Duration) {
	t.Helper()
	for name, call := range Calls(s) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		began := time.Now()
		err := call(ctx)
		took := time.Since(began)
		cancel()
		if !errors.Is(err, store.ErrAway) {
			t.Errorf("%s: got the error %v, want one that is ErrAway", name, err)
		}
		if took > limit+2*time.Second {
			t.Errorf("%s: took %s of %s", name, took, limit)
		}
	}
}

func closedIsAway(t *testing.T, s store.Store) {
	s.Close()
	Away(t, s, 5*time.Second)
}

func cancelled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range Calls(s) {
		if err := call(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrAway) {
			t.Errorf("%s: got the error %v, want one that is context.Canceled and not ErrAway", name, err)
		}
	}
}

func noTime(t *testing.T, s store.Store) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for name, call := range Calls(s) {
		if err := call(ctx); !errors.Is(err, store.ErrAway) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got the error %v, want one that is ErrAway and context.DeadlineExceeded", name, err)
		}
	}
}

func goesOn(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	together(func(i int) (struct{}, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		defer cancel()
		for _, call := range Calls(s) {
			call(ctx) // some get through and some do not: either is right
		}
		return struct{}{}, nil
	})
	got := fetched(t, s, run.ID)
	if got.Status == jobs.Running {
		got = finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
	}
	if got.Status != jobs.Succeeded {
		t.Errorf("the run is %s(%s)", got.Status, got.Reason)
	}
	granted(t, s, want(tick("restock", 2)))
}
