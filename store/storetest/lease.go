package storetest

import (
	"slices"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

var leases = []promise{
	{"renew moves the lease to that long from now", renewMoves},
	{"renew tells which runs are no longer ours", renewLost},
	{"renew of nothing is nothing", renewNothing},
	{"a renewed run is neither reaped nor pushed aside", renewKeeps},
	{"reap closes what has ended by the store's clock, and nothing else", reapCloses},
	{"a lost run is reaped once, by one of many", reapOnce},
	{"a lock is free once its lost run was reaped", reapFrees},
}

func more(run jobs.Run, lease time.Duration) store.Renewal {
	return store.Renewal{Run: run.ID, Lock: run.Lock, Lease: lease}
}

func renewMoves(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	for _, lease := range []time.Duration{2 * time.Hour, time.Minute} {
		before, _ := s.Now(t.Context())
		lost, err := s.Renew(t.Context(), "one", more(run, lease))
		if err != nil || len(lost) != 0 {
			t.Fatalf("renew: lost %v, %v", lost, err)
		}
		after, _ := s.Now(t.Context())
		for _, got := range []jobs.Run{fetched(t, s, run.ID), listed(t, s, store.Filter{})[0]} {
			if got.LeaseUntil.Before(before.Add(lease)) || got.LeaseUntil.After(after.Add(lease)) {
				t.Errorf("the lease ends %s, want %s after %s", got.LeaseUntil, lease, before)
			}
			got.LeaseUntil = run.LeaseUntil
			same(t, got, run)
		}
	}
}

func renewLost(t *testing.T, s store.Store) {
	ours := granted(t, s, want(tick("ours", 0)))
	done := granted(t, s, want(tick("done", 0)))
	finished(t, s, done, jobs.Outcome{Status: jobs.Succeeded})
	c := want(tick("theirs", 0))
	c.Replica = "two"
	theirs := granted(t, s, c)

	lost, err := s.Renew(t.Context(), "one", more(theirs, time.Hour), more(ours, time.Hour), more(done, time.Hour), store.Renewal{Run: 999999, Lock: "ours", Lease: time.Hour})
	slices.Sort(lost)
	expected := []int64{done.ID, theirs.ID, 999999}
	slices.Sort(expected)
	if err != nil || !slices.Equal(lost, expected) {
		t.Fatalf("lost %v (%v), want %v", lost, err, expected)
	}
	same(t, fetched(t, s, theirs.ID), theirs)
}

func renewNothing(t *testing.T, s store.Store) {
	if lost, err := s.Renew(t.Context(), "one"); err != nil || len(lost) != 0 {
		t.Fatalf("lost %v, %v", lost, err)
	}
}

func renewKeeps(t *testing.T, s store.Store) {
	run := granted(t, s, soon(tick("restock", 0)))
	if lost, err := s.Renew(t.Context(), "one", more(run, time.Hour)); err != nil || len(lost) != 0 {
		t.Fatalf("a run that nobody closed is still ours to renew: lost %v, %v", lost, err)
	}
	if reaped, err := s.Reap(t.Context()); err != nil || len(reaped) != 0 {
		t.Fatalf("reaped %v, %v", ids(reaped), err)
	}
	_, err := s.Claim(t.Context(), want(tick("restock", 1)))
	refused(t, err, store.ErrOverlap)
}

func reapCloses(t *testing.T, s store.Store) {
	long := granted(t, s, want(tick("long", 0)))
	first := granted(t, s, soon(tick("first", 0)))
	second := granted(t, s, soon(tick("second", 0)))
	done := finished(t, s, granted(t, s, soon(tick("done", 0))), jobs.Outcome{Status: jobs.Succeeded})

	var reaped []jobs.Run
	eventually(t, "both leases have ended", func() bool {
		some, err := s.Reap(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reaped = append(reaped, some...)
		return len(reaped) >= 2
	})
	if !slices.Equal(ids(reaped), []int64{first.ID, second.ID}) {
		t.Fatalf("reaped %v, want %v", ids(reaped), []int64{first.ID, second.ID})
	}
	for i, lost := range []jobs.Run{first, second} {
		got := reaped[i]
		if got.Finished.Before(lost.LeaseUntil) || got.Error == "" {
			t.Errorf("closed at %s with the error %q; the lease ended %s", got.Finished, got.Error, lost.LeaseUntil)
		}
		lost.Status, lost.Reason, lost.Error, lost.Finished = jobs.Unknown, jobs.ReasonReplicaLost, got.Error, got.Finished
		same(t, got, lost)
		same(t, fetched(t, s, lost.ID), lost)
	}
	same(t, fetched(t, s, long.ID), long)
	same(t, fetched(t, s, done.ID), done)
}

func reapOnce(t *testing.T, s store.Store) {
	const lost = 20
	for i := range lost {
		granted(t, s, soon(tickUnder("lock-"+string(rune('a'+i)), "restock", i)))
	}
	seen := map[int64]int{}
	eventually(t, "all are reaped", func() bool {
		results, errs := together(func(int) ([]jobs.Run, error) { return s.Reap(t.Context()) })
		count(t, errs, nil)
		for _, runs := range results {
			for _, run := range runs {
				seen[run.ID]++
			}
		}
		return len(seen) == lost
	})
	for id, n := range seen {
		if n != 1 {
			t.Errorf("run %d was reaped %d times", id, n)
		}
	}
}

func reapFrees(t *testing.T, s store.Store) {
	run := granted(t, s, soon(tick("restock", 0)))
	eventually(t, "the run is reaped", func() bool {
		reaped, _ := s.Reap(t.Context())
		return len(reaped) == 1
	})
	granted(t, s, want(tick("restock", 1)))
	lost, err := s.Renew(t.Context(), "one", more(run, time.Hour))
	if err != nil || !slices.Equal(lost, []int64{run.ID}) {
		t.Errorf("a reaped run was renewed: lost %v, %v", lost, err)
	}
}
