package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

var states = []promise{
	{"a job is accounted for since it was first registered", registerSince},
	{"a changed schedule begins a new account, and only that", registerChanged},
	{"many who register the same jobs agree", registerTogether},
	{"replicas are live for a while after they reported", beats},
	{"migrate again is nothing, and status says how far it is", migrateAgain},
	{"the store's clock moves forward, in UTC", clockMoves},
}

func registered(t *testing.T, s store.Store, list ...store.JobState) []store.JobState {
	t.Helper()
	got, err := s.Register(t.Context(), "r1", list...)
	if err != nil {
		t.Fatalf("register: %v", err)
	}
	return got
}

func registerSince(t *testing.T, s store.Store) {
	if got := registered(t, s); len(got) != 0 {
		t.Errorf("registering nothing returned %v", got)
	}
	before, _ := s.Now(t.Context())
	first := registered(t, s, store.JobState{Name: "restock", Schedule: "every 1m"}, store.JobState{Name: "billing", Schedule: "日 0 0 * * *"})
	after, _ := s.Now(t.Context())
	if len(first) != 2 {
		t.Fatalf("got the states %v, want two", first)
	}
	for _, j := range first {
		if j.Since.Before(before) || j.Since.After(after) || j.Since.Location() != time.UTC {
			t.Errorf("%s since %s, want now by the store's clock, in UTC", j.Name, j.Since)
		}
	}
	// What the caller believes of Since does not count.
	again := registered(t, s, store.JobState{Name: "restock", Schedule: "every 1m", Since: epoch.AddDate(9, 0, 0)})
	if len(again) != 1 || again[0] != find(first, "restock") {
		t.Errorf("got %v, want what it was: %v", again, first)
	}
}

func find(list []store.JobState, name string) store.JobState {
	i := slices.IndexFunc(list, func(j store.JobState) bool { return j.Name == name })
	if i < 0 {
		return store.JobState{}
	}
	return list[i]
}

func registerChanged(t *testing.T, s store.Store) {
	first := registered(t, s, store.JobState{Name: "restock", Schedule: "every 1m"}, store.JobState{Name: "billing", Schedule: "every 1m"})
	var second []store.JobState
	eventually(t, "the clock has moved", func() bool {
		now, err := s.Now(t.Context())
		return err == nil && now.After(first[0].Since) && now.After(first[1].Since)
	})
	second = registered(t, s, store.JobState{Name: "restock", Schedule: "every 5m"}, store.JobState{Name: "billing", Schedule: "every 1m"})
	if got := find(second, "billing"); got != find(first, "billing") {
		t.Errorf("billing did not change, and is now %v", got)
	}
	if got := find(second, "restock"); got.Schedule != "every 5m" || !got.Since.After(find(first, "restock").Since) {
		t.Errorf("restock changed, and is %v, was %v", got, first)
	}
}

func registerTogether(t *testing.T, s store.Store) {
	const registered = 50
	got, errs := together(func(i int) ([]store.JobState, error) {
		list := make([]store.JobState, registered)
		for n := range list {
			list[n] = store.JobState{Name: fmt.Sprint("job-", n), Schedule: "every 1m"}
		}
		if i%2 == 1 { // two who go towards each other must not wait for each other
			slices.Reverse(list)
		}
		return s.Register(t.Context(), "r1", list...)
	})
	count(t, errs, nil)
	for _, list := range got {
		if len(list) != registered {
			t.Fatalf("%d states of %d jobs", len(list), registered)
		}
		for _, j := range list {
			if j != find(got[0], j.Name) {
				t.Errorf("callers disagree: %v and %v", j, find(got[0], j.Name))
			}
		}
	}
}

func beats(t *testing.T, s store.Store) {
	before, _ := s.Now(t.Context())
	_, errs := together(func(i int) (struct{}, error) {
		return struct{}{}, s.Beat(t.Context(), store.Replica{Name: fmt.Sprint("replica-", i%3), Revision: "r1", Started: epoch})
	})
	count(t, errs, nil)
	if err := s.Beat(t.Context(), store.Replica{Name: "replica-0", Revision: "r2", Started: epoch.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	list, err := s.Replicas(t.Context())
	if err != nil || len(list) != 3 {
		t.Fatalf("%v (%v), want three replicas", list, err)
	}
	for i, r := range list {
		expected := store.Replica{Name: fmt.Sprint("replica-", i), Revision: "r1", Started: epoch, Seen: r.Seen, Live: true}
		if i == 0 {
			expected.Revision, expected.Started = "r2", epoch.Add(time.Hour)
		}
		if r != expected || r.Seen.Before(before) {
			t.Errorf("got %+v, want %+v, seen since %s", r, expected, before)
		}
	}
}

func migrateAgain(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	_, errs := together(func(int) (struct{}, error) { return struct{}{}, s.Migrate(t.Context()) })
	count(t, errs, nil)
	status, err := s.Status(t.Context())
	if err != nil || status.Known == 0 || status.Applied != status.Known {
		t.Errorf("status %+v, %v", status, err)
	}
	finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
}

func clockMoves(t *testing.T, s store.Store) {
	first, err := s.Now(t.Context())
	if err != nil || first.Location() != time.UTC {
		t.Fatalf("now is %s, %v", first, err)
	}
	eventually(t, "the clock has moved", func() bool {
		now, err := s.Now(t.Context())
		return err == nil && now.After(first)
	})
}
