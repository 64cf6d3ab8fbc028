package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

var lists = []promise{
	{"an empty store has empty lists", listEmpty},
	{"a list is newest first, and filtered by each field", listFilters},
	{"pages follow each other without a gap", listPages},
	{"a list holds 50 runs, and never more than 1000", listLimits},
	{"a follower sees every run once, in order, whoever writes at once", listFollow},
	{"latest is the newest run of each job", listLatest},
	{"dues are the instants of a job that have a row", listDues},
	{"a run that is not there is not found", listNotFound},
}

func listEmpty(t *testing.T, s store.Store) {
	for _, f := range []store.Filter{{}, {After: 1}, {Before: 1}, {Job: "none"}, {Status: jobs.Failed}} {
		if runs := listed(t, s, f); len(runs) != 0 {
			t.Errorf("%+v: %d runs", f, len(runs))
		}
	}
	if latest, err := s.Latest(t.Context()); err != nil || len(latest) != 0 {
		t.Errorf("latest: %v, %v", latest, err)
	}
	if dues, err := s.Dues(t.Context(), "none", epoch, epoch.AddDate(1, 0, 0)); err != nil || len(dues) != 0 {
		t.Errorf("dues: %v, %v", dues, err)
	}
	if replicas, err := s.Replicas(t.Context()); err != nil || len(replicas) != 0 {
		t.Errorf("replicas: %v, %v", replicas, err)
	}
	if reaped, err := s.Reap(t.Context()); err != nil || len(reaped) != 0 {
		t.Errorf("reaped: %v, %v", reaped, err)
	}
}

func listFilters(t *testing.T, s store.Store) {
	var all []int64
	for n, o := range []jobs.Outcome{{Status: jobs.Succeeded}, {Status: jobs.Failed}, {Status: jobs.Succeeded}} {
		for _, job := range []string{"restock", "billing"} {
			run := granted(t, s, want(tick(job, n)))
			finished(t, s, run, o)
			all = append(all, run.ID)
		}
	}
	at := func(of ...int) (picked []int64) {
		for _, i := range of {
			picked = append(picked, all[i])
		}
		return picked
	}
	for _, c := range []struct {
		filter store.Filter
		want   []int64
	}{
		{store.Filter{}, at(5, 4, 3, 2, 1, 0)},
		{store.Filter{Job: "restock"}, at(4, 2, 0)},
		{store.Filter{Job: "rest"}, nil},
		{store.Filter{Job: "x' OR '1'='1"}, nil},
		{store.Filter{Status: jobs.Failed}, at(3, 2)},
		{store.Filter{Status: "great"}, nil},
		{store.Filter{Since: tick("", 1).Due}, at(5, 4, 3, 2)},
		{store.Filter{Since: tick("", 1).Due.Add(time.Microsecond)}, at(5, 4)},
		{store.Filter{Limit: 2}, at(5, 4)},
		{store.Filter{Before: all[2]}, at(1, 0)},
		{store.Filter{After: all[2]}, at(3, 4, 5)},
		{store.Filter{After: all[2], Limit: 1}, at(3)},
		{store.Filter{After: all[0], Before: all[4]}, at(1, 2, 3)},
		{store.Filter{Job: "billing", Status: jobs.Succeeded, Since: tick("", 1).Due}, at(5)},
		{store.Filter{Job: "billing", After: all[0], Limit: 2}, at(1, 3)},
		{store.Filter{After: all[5]}, nil},
	} {
		if got := ids(listed(t, s, c.filter)); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.filter, got, c.want)
		}
	}
}

// many records n ticks and returns their ids, oldest first.
func many(t *testing.T, s store.Store, n int) []int64 {
	t.Helper()
	runs := make([]jobs.Run, n)
	for i := range runs {
		runs[i] = ended("restock", i, jobs.Missed, jobs.ReasonNoReplica)
	}
	return ids(recorded(t, s, runs...))
}

func listPages(t *testing.T, s store.Store) {
	all := many(t, s, 25)
	var pages []int64
	for before := int64(0); ; {
		page := ids(listed(t, s, store.Filter{Limit: 7, Before: before}))
		if len(page) == 0 {
			break
		}
		pages = append(pages, page...)
		before = page[len(page)-1]
	}
	slices.Reverse(pages)
	if !slices.Equal(pages, all) {
		t.Errorf("pages hold %v, want %v", pages, all)
	}
}

func listLimits(t *testing.T, s store.Store) {
	many(t, s, 1100)
	for limit, expected := range map[int]int{0: 50, -1: 50, 1: 1, 51: 51, 1000: 1000, 1001: 1000, 1 << 40: 1000} {
		if runs := listed(t, s, store.Filter{Limit: limit}); len(runs) != expected {
			t.Errorf("limit %d: %d runs, want %d", limit, len(runs), expected)
		}
	}
}

func listFollow(t *testing.T, s store.Store) {
	first := granted(t, s, want(tick("first", 0)))
	const each = 15
	var errs []error
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, errs = together(func(i int) (struct{}, error) {
			for n := range each {
				var err error
				if n%2 == 0 {
					_, err = s.Claim(t.Context(), want(tickUnder(fmt.Sprintf("lock-%d-%d", i, n), fmt.Sprint("job-", i), n)))
				} else {
					_, err = s.Record(t.Context(), ended(fmt.Sprint("job-", i), n, jobs.Missed, jobs.ReasonLate))
				}
				if err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
	}()
	var followed []int64
	for last, more := first.ID, true; more; {
		select {
		case <-written: // one more round sees the rest
			more = false
		default:
		}
		for {
			page, err := s.Runs(t.Context(), store.Filter{After: last, Limit: 20})
			if err != nil {
				t.Error(err)
			}
			if len(page) == 0 {
				break
			}
			followed = append(followed, ids(page)...)
			last = followed[len(followed)-1]
		}
	}
	<-written
	count(t, errs, nil)
	if !slices.IsSorted(followed) {
		t.Error("runs were followed out of order")
	}
	if len(slices.Compact(slices.Clone(followed))) != crowd*each {
		t.Errorf("%d runs were followed, want %d: a run that committed late was passed over", len(followed), crowd*each)
	}
}

func listLatest(t *testing.T, s store.Store) {
	expected := map[string]jobs.Run{}
	for n := range 3 {
		for _, job := range []string{"billing", "restock", "zebra"} {
			run := granted(t, s, want(tick(job, n)))
			expected[job] = finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
		}
	}
	expected["restock"] = granted(t, s, want(tick("restock", 9)))
	expected["audit"] = recorded(t, s, ended("audit", 0, jobs.Missed, jobs.ReasonNoQuorum))[0]
	if lost, err := s.Renew(t.Context(), "one", more(expected["restock"], 2*time.Hour)); err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	expected["restock"] = fetched(t, s, expected["restock"].ID) // with the lease as renewed

	latest, err := s.Latest(t.Context())
	if err != nil || len(latest) != len(expected) {
		t.Fatalf("latest of %d jobs (%v), want %d", len(latest), err, len(expected))
	}
	for job, run := range expected {
		same(t, latest[job], run)
	}
}

func listDues(t *testing.T, s store.Store) {
	granted(t, s, want(tick("restock", 1)))
	second := tick("restock", 1)
	second.Attempt = 2
	recorded(t, s, ended("restock", 3, jobs.Missed, jobs.ReasonLate), ended("restock", 2, jobs.Skipped, jobs.ReasonOverlap),
		ended("restock", 4, jobs.Missed, jobs.ReasonLate), ended("billing", 2, jobs.Missed, jobs.ReasonLate),
		jobs.Run{Job: "restock", Due: second.Due, Attempt: 2, Trigger: jobs.TriggerManual, Status: jobs.Missed})
	got, err := s.Dues(t.Context(), "restock", tick("", 1).Due, tick("", 3).Due)
	expected := []time.Time{tick("", 1).Due, tick("", 2).Due, tick("", 3).Due}
	if err != nil || !slices.Equal(got, expected) {
		t.Errorf("got %v (%v), want %v, both ends included, in UTC", got, err, expected)
	}
}

func listNotFound(t *testing.T, s store.Store) {
	for _, id := range []int64{0, -1, 1, 1 << 62} {
		_, err := s.Run(t.Context(), id)
		refused(t, err, store.ErrNotFound)
	}
}
