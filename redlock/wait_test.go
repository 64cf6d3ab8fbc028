package redlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/redlock"
)

func TestWhoWaitsGetsTheLockWhenItIsReleased(t *testing.T) {
	overBoth(t, func(t *testing.T, urls []string) {
		a, b := newLocker(t, ungated, urls), newLocker(t, ungated, urls)
		held, err := a.Acquire(t.Context(), "k", time.Minute, "a")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			lease, err := b.Wait(context.Background(), "k", time.Minute, "b")
			if err == nil {
				err = lease.Release()
			}
			got <- err
		}()
		select {
		case err := <-got:
			t.Fatalf("did not wait: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	})
}

func TestAMasterTellsWhoWaitsWellBeforeTheNextTry(t *testing.T) {
	urls := urlsOf(testenv.Masters(t, 5))
	a, b := newLocker(t, ungated, urls), newLocker(t, ungated, urls)
	var told, rounds int
	for range 12 {
		held := acquireSoon(t, a, "k", time.Minute)
		got := make(chan time.Time, 1)
		go func() {
			lease, err := b.Wait(context.Background(), "k", time.Minute, "b")
			got <- time.Now()
			if err != nil {
				t.Error(err)
				return
			}
			_ = lease.Release()
		}()
		time.Sleep(400 * time.Millisecond) // until the pause between tries is long
		start := time.Now()
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		// By trying alone, one round in three would be as quick as that.
		if gap := (<-got).Sub(start); gap < 80*time.Millisecond {
			told++
		}
		rounds++
	}
	if told < rounds*2/3 {
		t.Errorf("told in time in %d of %d rounds", told, rounds)
	}
}

func TestWaitingEndsWithTheContextAndSaysForWhomItWaited(t *testing.T) {
	overBoth(t, func(t *testing.T, urls []string) {
		l := newLocker(t, ungated, urls)
		held, err := l.Acquire(t.Context(), "k", time.Minute, "the other one")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = l.Wait(ctx, "k", time.Minute, "")
		var taken *redlock.TakenError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &taken) || taken.Note != "the other one" {
			t.Errorf("%v", err)
		}
		if _, err = l.Wait(t.Context(), "", time.Minute, ""); err == nil {
			t.Error("an empty key was waited for")
		}
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEverybodyWhoWaitsGetsTheLockOnceAndNeverTwoAtOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, urls []string) {
		var owners, served atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			l := newLocker(t, ungated, urls)
			for range 4 {
				all.Go(func() {
					lease, err := l.Wait(context.Background(), "k", time.Minute, "")
					if err != nil {
						t.Error(err)
						return
					}
					if owners.Add(1) > 1 {
						t.Error("two owners at once")
					}
					served.Add(1)
					time.Sleep(time.Millisecond)
					owners.Add(-1)
					if err := lease.Release(); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if n := served.Load(); n != 16 {
			t.Errorf("%d of 16 were served", n)
		}
	})
}
