package scheduler

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/jobs"
	"quorate/store"
)

func TestTicksThatNobodyRanAreFoundAndWrittenOnce(t *testing.T) {
	c := newCluster(t)
	j := job(t, "x", func(j *jobs.Job) {
		j.Every, j.StartDeadline = jobs.Durations{time.Second}, jobs.Duration(10*time.Second)
	}, nothing)
	a, b := c.replica(t, "a", c.store, j), c.replica(t, "b", c.openStore(t, c.storeURL), j)
	now := time.Now().Truncate(time.Second)
	since := now.Add(-time.Hour)
	there := jobs.Run{Job: "x", Due: now.Add(-30 * time.Minute), Attempt: 1, Trigger: jobs.TriggerSchedule, Status: jobs.Skipped, Reason: jobs.ReasonOverlap, Lock: "x"}
	if _, err := c.store.Record(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	for _, s := range []*Scheduler{a, b} {
		both.Go(func() {
			if err := s.accountFor(context.Background(), j, since, now); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	dues, err := c.store.Dues(t.Context(), "x", since, now)
	if err != nil {
		t.Fatal(err)
	}
	want := 3600 - 20 - 1 // the last 20 s may still be on their way; both ends are open
	if len(dues) != want {
		t.Errorf("%d rows, want %d", len(dues), want)
	}
	missed := c.rows(t, "x")
	for _, r := range missed {
		if r.Due.Equal(there.Due) != (r.Status == jobs.Skipped) {
			t.Fatalf("%s is %s(%s)", r.Due, r.Status, r.Reason)
		}
	}
}

func TestWhileTheStoreIsAwayNothingStartsAndTheTickIsRecordedLater(t *testing.T) {
	c := newCluster(t)
	u, err := url.Parse(c.storeURL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testenv.NewProxy(t, u.Host)
	u.Host = proxy.Addr()
	var ran atomic.Bool
	j := job(t, "x", func(j *jobs.Job) { j.StartDeadline = jobs.Duration(time.Second) }, func(context.Context, jobs.Run) error {
		ran.Store(true)
		return nil
	})
	s := c.replica(t, "a", c.openStore(t, u.String()), j)
	proxy.Set(testenv.Refuse)
	if r, err := s.RunNow(t.Context(), "x", nil); !errors.Is(err, store.ErrAway) {
		t.Fatalf("%+v, %v", r, err)
	}
	proxy.Set(testenv.Pass)
	s.payOwed(t.Context())
	rows := c.rows(t, "x")
	if len(rows) != 1 || rows[0].Status != jobs.Missed || rows[0].Reason != jobs.ReasonNoStore || ran.Load() {
		t.Errorf("ran %v, rows %+v", ran.Load(), rows)
	}
}
