package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

var claims = []promise{
	{"a claim inserts the run as running, with its evidence", claimInserts},
	{"a tick is claimed once, and by one of many who want it at once", claimOnce},
	{"a tick that has ended is claimed for good", claimEnded},
	{"a second attempt is a tick of its own", claimAttempt},
	{"a lock has one running run, whoever wants it at once", claimOverlap},
	{"locks do not stand in each other's way", claimManyLocks},
	{"the same tick under two locks is claimed once", claimTwoLocks},
	{"a run in the way whose lease has ended is closed in passing, once", claimCloses},
	{"a lock whose run has ended is free", claimFree},
	{"fences of a lock only grow", claimFences},
	{"runs under one lock never overlap, and each tick runs once", claimSerial},
	{"ticks of any month can be claimed", claimAnyMonth},
	{"a claim that makes no sense is refused", claimNonsense},
}

func claimInserts(t *testing.T, s store.Store) {
	before, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := want(tickUnder("inventory", "restock", 0))
	run := granted(t, s, c)
	after, _ := s.Now(t.Context())

	if run.Started.Before(before) || run.Started.After(after) {
		t.Errorf("started %s, want a time between %s and %s by the store's clock", run.Started, before, after)
	}
	if lease := run.LeaseUntil.Sub(run.Started); lease < c.Lease || lease > c.Lease+time.Second {
		t.Errorf("the lease ends %s after the start, want %s", lease, c.Lease)
	}
	if run.ID <= 0 || run.Fence <= 0 {
		t.Errorf("id %d and fence %d, want positive numbers", run.ID, run.Fence)
	}
	for _, at := range []time.Time{run.Due, run.Started, run.LeaseUntil} {
		if at.Location() != time.UTC {
			t.Errorf("%s is not in UTC", at)
		}
	}
	same(t, run, jobs.Run{
		ID: run.ID, Job: "restock", Due: epoch, Attempt: 1, Trigger: jobs.TriggerSchedule, Status: jobs.Running,
		Lock: "inventory", Fence: run.Fence, Replica: "one", Revision: "r1",
		Started: run.Started, LeaseUntil: run.LeaseUntil, Evidence: c.Evidence,
	})
	same(t, fetched(t, s, run.ID), run)
}

func claimOnce(t *testing.T, s store.Store) {
	_, errs := together(func(int) (jobs.Run, error) { return s.Claim(t.Context(), want(tick("restock", 0))) })
	if n := count(t, errs, nil, store.ErrClaimed); n[nil] != 1 {
		t.Fatalf("%d of %d claims were granted, want 1", n[nil], crowd)
	}
	if runs := listed(t, s, store.Filter{}); len(runs) != 1 {
		t.Fatalf("%d rows for one tick", len(runs))
	}
}

func claimEnded(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	finished(t, s, run, jobs.Outcome{Status: jobs.Failed, Reason: jobs.ReasonStep})
	_, err := s.Claim(t.Context(), want(tick("restock", 0)))
	refused(t, err, store.ErrClaimed)
	says(t, err, "restock@", "one", "failed")

	// A nanosecond is below what a store tells apart: still the same tick.
	near := tick("restock", 0)
	near.Due = near.Due.Add(time.Nanosecond).In(time.FixedZone("elsewhere", 3600))
	_, err = s.Claim(t.Context(), want(near))
	refused(t, err, store.ErrClaimed)
}

func claimAttempt(t *testing.T, s store.Store) {
	finished(t, s, granted(t, s, want(tick("restock", 0))), jobs.Outcome{Status: jobs.Failed})
	second := tick("restock", 0)
	second.Attempt, second.Trigger = 2, jobs.TriggerManual
	run := granted(t, s, want(second))
	if run.Attempt != 2 || run.Trigger != jobs.TriggerManual {
		t.Fatalf("got attempt %d, made by %s", run.Attempt, run.Trigger)
	}
}

func claimOverlap(t *testing.T, s store.Store) {
	runs, errs := together(func(i int) (jobs.Run, error) {
		return s.Claim(t.Context(), want(tickUnder("inventory", "restock", i)))
	})
	if n := count(t, errs, nil, store.ErrOverlap); n[nil] != 1 {
		t.Fatalf("%d of %d claims under one lock were granted, want 1", n[nil], crowd)
	}
	for i, err := range errs {
		if err != nil {
			says(t, err, "inventory", "one")
		} else if running := listed(t, s, store.Filter{Status: jobs.Running}); len(running) != 1 || running[0].ID != runs[i].ID {
			t.Fatalf("running: %v, want run %d alone", ids(running), runs[i].ID)
		}
	}
}

func claimManyLocks(t *testing.T, s store.Store) {
	runs, errs := together(func(i int) (jobs.Run, error) {
		return s.Claim(t.Context(), want(tickUnder("lock-"+string(rune('a'+i)), "restock", i)))
	})
	count(t, errs, nil)
	seen := map[int64]bool{}
	for _, run := range runs {
		if seen[run.ID] {
			t.Fatalf("two runs have the id %d", run.ID)
		}
		seen[run.ID] = true
	}
}

func claimTwoLocks(t *testing.T, s store.Store) {
	_, errs := together(func(i int) (jobs.Run, error) {
		return s.Claim(t.Context(), want(tickUnder([]string{"old", "new"}[i%2], "restock", 0)))
	})
	if n := count(t, errs, nil, store.ErrClaimed); n[nil] != 1 {
		t.Fatalf("%d of %d claims were granted, want 1", n[nil], crowd)
	}
}

func claimCloses(t *testing.T, s store.Store) {
	late := granted(t, s, soon(tick("restock", 0)))
	runs, errs := together(func(i int) (jobs.Run, error) { return s.Claim(t.Context(), want(tick("restock", i+1))) })
	if n := count(t, errs, nil, store.ErrOverlap); n[nil] != 1 {
		t.Fatalf("%d of %d claims after a lost run were granted, want 1", n[nil], crowd)
	}
	closed := fetched(t, s, late.ID)
	if closed.Status != jobs.Unknown || closed.Reason != jobs.ReasonReplicaLost || closed.Finished.IsZero() || closed.Error == "" {
		t.Fatalf("the run in the way is %+v, want unknown(replica_lost)", closed)
	}
	if closed.Fence != late.Fence || !closed.LeaseUntil.Equal(late.LeaseUntil) || !closed.Started.Equal(late.Started) {
		t.Fatalf("closing changed more than how the run ended: %+v, was %+v", closed, late)
	}
	for i, err := range errs {
		if err == nil && runs[i].Fence <= late.Fence {
			t.Fatalf("fence %d was granted after %d", runs[i].Fence, late.Fence)
		}
	}
}

func claimFree(t *testing.T, s store.Store) {
	finished(t, s, granted(t, s, want(tick("restock", 0))), jobs.Outcome{Status: jobs.Succeeded})
	granted(t, s, want(tick("restock", 1)))
	_, err := s.Claim(t.Context(), want(tick("restock", 2)))
	refused(t, err, store.ErrOverlap)
}

func claimFences(t *testing.T, s store.Store) {
	last := map[string]jobs.Fence{}
	for n := range 10 {
		for _, lock := range []string{"inventory", "billing"} {
			c := want(tickUnder(lock, "job-"+lock, n))
			if n%3 == 0 {
				c = soon(c.Tick) // lost, and closed by the next claim
			}
			var run jobs.Run
			eventually(t, "the lock is free", func() (ok bool) {
				var err error
				run, err = s.Claim(t.Context(), c)
				return err == nil
			})
			if run.Fence <= last[lock] {
				t.Fatalf("lock %s: fence %d after %d", lock, run.Fence, last[lock])
			}
			last[lock] = run.Fence
			if n%3 != 0 {
				finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
			}
		}
	}
}

// claimSerial is many replicas that work off the same ticks under one lock.
func claimSerial(t *testing.T, s store.Store) {
	const ticks = 20
	var inside, overlaps atomic.Int32
	var mu sync.Mutex
	var fences []jobs.Fence
	_, errs := together(func(int) (struct{}, error) {
		for n := range ticks {
			run, err := s.Claim(t.Context(), want(tickUnder("inventory", "restock", n)))
			switch {
			case errors.Is(err, store.ErrClaimed), errors.Is(err, store.ErrOverlap):
				continue
			case err != nil:
				return struct{}{}, err
			}
			if inside.Add(1) > 1 {
				overlaps.Add(1)
			}
			mu.Lock()
			fences = append(fences, run.Fence)
			mu.Unlock()
			inside.Add(-1)
			if _, err := s.Finish(t.Context(), run, jobs.Outcome{Status: jobs.Succeeded}); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	count(t, errs, nil)
	if overlaps.Load() > 0 {
		t.Errorf("%d times, two runs under one lock ran at once", overlaps.Load())
	}
	for i := 1; i < len(fences); i++ {
		if fences[i] <= fences[i-1] {
			t.Fatalf("fences were granted in the order %v", fences)
		}
	}
	if runs := listed(t, s, store.Filter{Limit: 1000}); len(runs) != len(fences) {
		t.Errorf("%d claims were granted and %d rows are there", len(fences), len(runs))
	}
}

func claimAnyMonth(t *testing.T, s store.Store) {
	for i, due := range []time.Time{
		time.Date(1999, 12, 31, 23, 59, 59, 999999000, time.UTC),
		time.Date(2038, 2, 1, 0, 0, 0, 0, time.UTC),
		epoch.AddDate(0, 1, 0), epoch.AddDate(0, 2, 0), epoch.AddDate(0, 7, 0), epoch.AddDate(-1, 0, 0),
	} {
		at := tick("restock", 0)
		at.Due = due
		run := granted(t, s, want(at))
		done := finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded, Steps: []jobs.StepRun{{Name: "only", Kind: "sql", Status: jobs.Succeeded, Output: "x"}}})
		if !done.Due.Equal(due) {
			t.Errorf("%d: due %s came back as %s", i, due, done.Due)
		}
		if got := fetched(t, s, run.ID); len(got.Steps) != 1 || got.Steps[0].Output != "x" {
			t.Errorf("%d: steps of a run due %s are %+v", i, due, got.Steps)
		}
		_, err := s.Claim(t.Context(), want(at))
		refused(t, err, store.ErrClaimed)
	}
}

func claimNonsense(t *testing.T, s store.Store) {
	for name, spoil := range map[string]func(c *store.Claim){
		"no job":     func(c *store.Claim) { c.Tick.Job = nil },
		"no due":     func(c *store.Claim) { c.Tick.Due = time.Time{} },
		"no attempt": func(c *store.Claim) { c.Tick.Attempt = 0 },
		"no trigger": func(c *store.Claim) { c.Tick.Trigger = "" },
		"no replica": func(c *store.Claim) { c.Replica = "" },
		"no lease":   func(c *store.Claim) { c.Lease = 0 },
	} {
		c := want(tick("restock", 0))
		spoil(&c)
		if _, err := s.Claim(t.Context(), c); err == nil {
			t.Errorf("%s: was granted", name)
		}
	}
	if runs := listed(t, s, store.Filter{}); len(runs) != 0 {
		t.Errorf("%d rows were written", len(runs))
	}
}
