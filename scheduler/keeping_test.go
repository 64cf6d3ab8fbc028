package scheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

func TestStoppingLetsRunsFinishAndReleasesTheirLocks(t *testing.T) {
	c := newCluster(t)
	j, began, letGo := held(t, "x", func(j *jobs.Job) { j.TTL = jobs.Duration(time.Minute) })
	s := c.replica(t, "a", c.store, j)
	stop := start(t, s, time.Minute)
	r, err := s.RunNow(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	go func() {
		eventually(t, "the replica drains", 5*time.Second, func() bool {
			_, err := s.RunNow(context.Background(), "x", nil)
			return errors.Is(err, ErrDraining)
		})
		letGo()
	}()
	stop()
	if r, _ = c.store.Run(t.Context(), r.ID); r.Status != jobs.Succeeded {
		t.Errorf("run ended %s(%s)", r.Status, r.Reason)
	}
	other := c.replica(t, "b", c.store, job(t, "x", nil, nothing))
	if r, err := other.RunNow(t.Context(), "x", nil); err != nil || r.Status == jobs.Skipped {
		t.Errorf("the next owner got %s(%s), %v", r.Status, r.Reason, err)
	}
	other.work.drain(time.Minute)
}

func TestStoppingCancelsWhatOutlivesTheDrain(t *testing.T) {
	c := newCluster(t)
	j, began, _ := held(t, "x", nil)
	s := c.replica(t, "a", c.store, j)
	stop := start(t, s, 50*time.Millisecond)
	r, err := s.RunNow(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	stop()
	if r, _ = c.store.Run(t.Context(), r.ID); r.Status != jobs.Failed || r.Reason != jobs.ReasonShutdown {
		t.Errorf("run ended %s(%s): %s", r.Status, r.Reason, r.Error)
	}
}

func TestARunWhoseReplicaIsGoneIsClosedByAnother(t *testing.T) {
	c := newCluster(t)
	j := job(t, "x", nil, nothing)
	lost, err := c.store.Claim(t.Context(), store.Claim{
		Tick:    jobs.Tick{Job: j, Due: time.Now(), Attempt: 1, Trigger: jobs.TriggerSchedule},
		Replica: "gone", Revision: "r", Lease: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, c.replica(t, "a", c.store, j), time.Minute)
	eventually(t, "the lost run is closed", 5*time.Second, func() bool {
		r, _ := c.store.Run(t.Context(), lost.ID)
		return r.Status == jobs.Unknown && r.Reason == jobs.ReasonReplicaLost
	})
}

func TestARunLongerThanItsLeaseIsKeptAliveInTheStoreToo(t *testing.T) {
	c := newCluster(t)
	j, began, letGo := held(t, "x", func(j *jobs.Job) { j.TTL = jobs.Duration(200 * time.Millisecond) })
	s := c.replica(t, "a", c.store, j)
	start(t, s, time.Minute)
	r, err := s.RunNow(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	first := r.LeaseUntil
	eventually(t, "the lease has moved on twice", 10*time.Second, func() bool {
		r, _ = c.store.Run(t.Context(), r.ID)
		return r.LeaseUntil.After(first.Add(storeLease(jobs.Tick{Job: j})))
	})
	letGo()
	eventually(t, "the run succeeds", 5*time.Second, func() bool { r, _ = c.store.Run(t.Context(), r.ID); return r.Status.Final() })
	if r.Status != jobs.Succeeded || r.Evidence.Extensions == 0 {
		t.Errorf("%s(%s) after %d extensions", r.Status, r.Reason, r.Evidence.Extensions)
	}
}

func TestARunEndsWhenItsLeaseCannotBeExtended(t *testing.T) {
	c := newCluster(t)
	j, began, _ := held(t, "x", func(j *jobs.Job) { j.TTL = jobs.Duration(500 * time.Millisecond) })
	s := c.replica(t, "a", c.store, j)
	r, err := s.RunNow(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	for _, m := range c.masters[:3] {
		m.Stop()
	}
	eventually(t, "the run has ended", 10*time.Second, func() bool { r, _ = c.store.Run(t.Context(), r.ID); return r.Status.Final() })
	if r.Status != jobs.Failed || r.Reason != jobs.ReasonLeaseLost {
		t.Errorf("%s(%s): %s", r.Status, r.Reason, r.Error)
	}
}

func TestAReplicaThatStopsLeavesATickThatCouldNotRunToTheOthers(t *testing.T) {
	c := newCluster(t)
	j := job(t, "x", nil, nothing)
	s := c.replica(t, "a", c.store, j)
	for _, m := range c.masters[:3] {
		m.Kill()
	}
	tick := jobs.Tick{Job: j, Due: time.Now(), Attempt: 1, Trigger: jobs.TriggerSchedule}
	ended := make(chan error, 1)
	if !s.work.start(func(ctx context.Context) { _, err := s.settle(ctx, tick, nil); ended <- err }) {
		t.Fatal("not started")
	}
	s.work.drain(50 * time.Millisecond)
	if err := <-ended; !errors.Is(err, ErrDraining) {
		t.Errorf("settled with %v", err)
	}
	if rows := c.rows(t, "x"); len(rows) != 0 {
		t.Errorf("the replica wrote %+v", rows)
	}
}
