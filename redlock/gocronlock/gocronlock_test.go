package gocronlock_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"quorate/redlock"
	"quorate/redlock/embedded"
	"quorate/redlock/gocronlock"
)

func newLocker(t *testing.T) *redlock.Locker {
	t.Helper()
	m, err := embedded.Start(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	l, err := redlock.New(redlock.Options{RestartGuard: -1, MasterTimeout: 5 * time.Second}, m.URLs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestAJobThatRunsIsLockedForOthersAndReleasedByAShutdown(t *testing.T) {
	locker := newLocker(t)
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.New(locker, time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	began, gate := make(chan struct{}, 1), make(chan struct{})
	_, err = s.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(func() {
		began <- struct{}{}
		<-gate
	}), gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartImmediately()))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	<-began
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := locker.Acquire(t.Context(), "report", time.Second, ""); !errors.Is(err, redlock.ErrTaken) {
			t.Fatalf("while the job runs, beyond its TTL: %v", err)
		}
	}
	go func() {
		time.Sleep(50 * time.Millisecond) // the shutdown cancels the job's context first
		close(gate)
	}()
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	lease, err := locker.Acquire(t.Context(), "report", time.Second, "")
	if err != nil {
		t.Fatalf("after the shutdown: %v", err)
	}
	_ = lease.Release()
}

func TestALostLeaseIsTold(t *testing.T) {
	m, err := embedded.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	locker, err := redlock.New(redlock.Options{RestartGuard: -1, MasterTimeout: time.Second}, m.URLs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	var lost atomic.Value
	g := gocronlock.New(locker, time.Second)
	g.Lost = func(job string, why error) { lost.Store(why) }
	lock, err := g.Lock(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	for deadline := time.Now().Add(10 * time.Second); lost.Load() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody was told")
		}
	}
	if why := lost.Load().(error); !errors.Is(why, redlock.ErrLost) {
		t.Error(why)
	}
	if err := lock.Unlock(t.Context()); err == nil {
		t.Error("unlocked without a master")
	}
}
