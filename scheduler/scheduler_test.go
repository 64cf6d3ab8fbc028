package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/jobs"
)

func TestThreeReplicasRunEachTickOnce(t *testing.T) {
	c := newCluster(t)
	var mu sync.Mutex
	effects := map[time.Time]int{}
	tick := func(_ context.Context, run jobs.Run) error {
		mu.Lock()
		defer mu.Unlock()
		effects[run.Due]++
		return nil
	}
	var stops []func()
	for i := range 3 {
		j := job(t, "beat", func(j *jobs.Job) { j.Cron = jobs.Strings{"* * * * * *"} }, tick)
		s := c.replica(t, fmt.Sprintf("r%d", i), c.openStore(t, c.storeURL), j)
		stops = append(stops, start(t, s, time.Minute))
	}
	eventually(t, "six ticks have run", 20*time.Second, func() bool { return len(c.rows(t, "beat")) >= 6 })
	for _, stop := range stops {
		stop()
	}
	rows := c.rows(t, "beat")
	for i, r := range rows {
		if r.Status != jobs.Succeeded || effects[r.Due] != 1 {
			t.Errorf("%s ended %s(%s) with %d effects: %s", r.Due, r.Status, r.Reason, effects[r.Due], r.Error)
		}
		if i > 0 && r.Due.Sub(rows[i-1].Due) != time.Second {
			t.Errorf("%s follows %s: a tick has no row", r.Due, rows[i-1].Due)
		}
		if r.Evidence.Votes < 3 || r.Evidence.Left <= 0 {
			t.Errorf("evidence of %s: %+v", r.Due, r.Evidence)
		}
	}
	if len(effects) != len(rows) {
		t.Errorf("%d effects and %d rows", len(effects), len(rows))
	}
}

func TestATickDuringARunIsSkippedAndItsRowSaysWhatWasInTheWay(t *testing.T) {
	c := newCluster(t)
	j, began, letGo := held(t, "long", nil)
	a, b := c.replica(t, "a", c.store, j), c.replica(t, "b", c.openStore(t, c.storeURL), j)
	first, err := a.RunNow(t.Context(), "long", nil)
	if err != nil || first.Status != jobs.Running {
		t.Fatalf("first: %+v, %v", first, err)
	}
	<-began
	second, err := b.RunNow(t.Context(), "long", nil)
	if err != nil || second.Status != jobs.Skipped || second.Reason != jobs.ReasonOverlap {
		t.Fatalf("second: %s(%s), %v", second.Status, second.Reason, err)
	}
	if !strings.Contains(second.Error, "by a") {
		t.Errorf("the row says %q, want the run in the way", second.Error)
	}
	letGo()
	eventually(t, "the first run ends", 5*time.Second, func() bool { r, _ := c.store.Run(t.Context(), first.ID); return r.Status == jobs.Succeeded })
	third, err := b.RunNow(t.Context(), "long", nil)
	if err != nil || third.Status == jobs.Skipped || third.Fence <= first.Fence {
		t.Errorf("after the first: %+v, %v", third, err)
	}
	b.work.drain(time.Minute)
	a.work.drain(time.Minute)
}

func TestAQueuedTickWaitsForTheLock(t *testing.T) {
	c := newCluster(t)
	first, began, letGo := held(t, "first", func(j *jobs.Job) { j.Lock = "shared" })
	second := job(t, "second", func(j *jobs.Job) { j.Lock, j.Overlap = "shared", jobs.OverlapQueue }, nothing)
	s := c.replica(t, "a", c.store, first, second)
	if _, err := s.RunNow(t.Context(), "first", nil); err != nil {
		t.Fatal(err)
	}
	<-began
	waiting := make(chan jobs.Run, 1)
	go func() {
		r, err := s.RunNow(context.Background(), "second", nil)
		if err != nil {
			t.Error(err)
		}
		waiting <- r
	}()
	select {
	case r := <-waiting:
		t.Fatalf("did not wait: %+v", r)
	case <-time.After(200 * time.Millisecond):
	}
	letGo()
	if r := <-waiting; r.Status != jobs.Running && r.Status != jobs.Succeeded {
		t.Errorf("second ended %s(%s): %s", r.Status, r.Reason, r.Error)
	}
	s.work.drain(time.Minute)
}

func TestWithoutAQuorumNothingStartsAndTheTickIsMissed(t *testing.T) {
	c := newCluster(t)
	var ran atomic.Bool
	j := job(t, "x", func(j *jobs.Job) { j.StartDeadline = jobs.Duration(time.Second) }, func(context.Context, jobs.Run) error {
		ran.Store(true)
		return nil
	})
	s := c.replica(t, "a", c.store, j)
	for _, m := range c.masters[:3] {
		m.Kill()
	}
	r, err := s.RunNow(t.Context(), "x", nil)
	if err != nil || r.Status != jobs.Missed || r.Reason != jobs.ReasonNoQuorum || ran.Load() {
		t.Fatalf("%s(%s), ran %v, %v", r.Status, r.Reason, ran.Load(), err)
	}
	if !strings.Contains(r.Error, "3 of 5 masters cannot vote") {
		t.Errorf("the row says %q", r.Error)
	}
}

func TestWithTwoMastersAwayEveryTickRuns(t *testing.T) {
	c := newCluster(t)
	s := c.replica(t, "a", c.store, job(t, "x", nil, nothing))
	c.masters[0].Kill()
	c.masters[1].Stop()
	for range 5 {
		r, err := s.RunNow(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the run succeeds", 5*time.Second, func() bool { r, _ = c.store.Run(t.Context(), r.ID); return r.Status.Final() })
		if r.Status != jobs.Succeeded {
			t.Errorf("%s(%s): %s", r.Status, r.Reason, r.Error)
		}
	}
}

func TestATickOlderThanItsStartDeadlineIsMissedAsLate(t *testing.T) {
	c := newCluster(t)
	j := job(t, "x", func(j *jobs.Job) { j.StartDeadline = jobs.Duration(10 * time.Second) }, nothing)
	s := c.replica(t, "a", c.store, j)
	tick := jobs.Tick{Job: j, Due: time.Now().Add(-11 * time.Second), Attempt: 1, Trigger: jobs.TriggerSchedule}
	r, err := s.settle(t.Context(), tick, nil)
	if err != nil || r.Status != jobs.Missed || r.Reason != jobs.ReasonLate {
		t.Errorf("%s(%s), %v", r.Status, r.Reason, err)
	}
}

func TestAnUnknownJobIsNamedWithThoseThatThereAre(t *testing.T) {
	c := newCluster(t)
	s := c.replica(t, "a", c.store, job(t, "x", nil, nothing), job(t, "y", nil, nothing))
	if _, err := s.RunNow(t.Context(), "z", nil); !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), "x, y") {
		t.Error(err)
	}
}

func TestAReplicaThatIsToldToStopBeforeItBeganStopsWithoutAnError(t *testing.T) {
	c := newCluster(t)
	s := c.replica(t, "a", c.store, job(t, "x", nil, nothing))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx, time.Minute); err != nil {
		t.Error(err)
	}
}
