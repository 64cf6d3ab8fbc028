package redlock_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/redlock"
)

// A program that locks, works and ends closes right after the release, which has
// returned at the quorum.
func TestAClosedLockerLeavesNoKeyOfAReleasedLease(t *testing.T) {
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	for n := range 100 {
		l := warm(t, ungated, urlsOf(masters))
		if err := acquire(t, l, fmt.Sprint("k", n), time.Minute).Release(); err != nil {
			t.Error(err)
		}
		l.Close()
	}
	for i, s := range servers {
		if n := order(t, s, "DBSIZE"); n != int64(0) {
			t.Errorf("master %d keeps %v of 100 keys for a minute", i, n)
		}
	}
}

// Nor does it leave a goroutine, whatever was under way.
func TestAClosedLockerLeavesNothingRunning(t *testing.T) {
	net := newNetwork(t, 3)
	before := running()
	for range 5 {
		l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: 100 * time.Millisecond}, net.through())
		lease := acquireSoon(t, l, "k", time.Minute)
		_, stop := lease.Keep(t.Context(), redlock.Limits{})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, _ = l.Wait(ctx, "k", time.Minute, "")
		cancel()
		net.proxies[0].Set(testenv.Hang)
		_, _ = l.Acquire(t.Context(), "another", time.Minute, "")
		_ = lease.Release()
		stop()
		l.Close()
		setAll(testenv.Pass, net.proxies...)
	}
	eventually(t, "all goroutines have ended", func() bool { return running() <= before })
}

// running counts the goroutines that a Locker started.
func running() (n int) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "created by quorate/redlock.") {
			n++
		}
	}
	return n
}

func TestAnObserverIsToldOfEachAttemptExtensionAndRelease(t *testing.T) {
	var told []redlock.Event
	l := warm(t, redlock.Options{RestartGuard: -1, Observe: func(e redlock.Event) { told = append(told, e) }}, urlsOf(testenv.Masters(t, 3)))
	lease := acquireSoon(t, l, "k", time.Minute)
	_, taken := l.Acquire(t.Context(), "k", time.Minute, "")
	extended, released := lease.Extend(t.Context()), lease.Release()
	told = told[len(told)-4:] // acquiring may have taken several
	for i, want := range []redlock.Event{
		{Op: redlock.Take}, {Op: redlock.Take, Err: taken}, {Op: redlock.Extend, Err: extended}, {Op: redlock.Release, Err: released},
	} {
		e := told[i]
		granted := want.Err == nil && want.Op != redlock.Release
		if e.Op != want.Op || e.Key != "k" || e.Err != want.Err || e.Took <= 0 || time.Since(e.Begun) > time.Minute || granted != (e.Validity > 0) {
			t.Errorf("event %d: %+v, want %s with %v", i, e, want.Op, want.Err)
		}
	}
}
