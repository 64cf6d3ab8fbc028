package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"quorate/internal/testenv"
	"quorate/redlock"
)

// A driver that asks again finds the key that its own lost question set, and says that
// somebody else has it.
func TestALostReplyToSETIsNotSomebodyElse(t *testing.T) {
	net := newNetwork(t, 5)
	servers := operators(t, net.masters)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: 500 * time.Millisecond}, net.through())
	for i := range 3 {
		key := fmt.Sprint("k", i)
		setAll(testenv.Mute, net.proxies[:3]...)
		_, err := l.Acquire(t.Context(), key, time.Minute, "")
		var none *redlock.NoQuorumError
		if errors.Is(err, redlock.ErrTaken) || !errors.As(err, &none) || len(none.Causes) != 3 {
			t.Fatalf("three of five answers were lost: %v", err)
		}
		eventually(t, "the SETs were done", func() bool { return holders(t, servers[:3], key) == 3 })
		setAll(testenv.Pass, net.proxies[:3]...)
		wantGone(t, servers, key)
		lease := acquireSoon(t, l, key, time.Minute)
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
		eventually(t, "all five are back", func() bool { _, err := l.Check(t.Context()); return err == nil && allWell(l) })
	}
}

func allWell(l *redlock.Locker) bool {
	for _, s := range l.Status() {
		if s.Err != nil {
			return false
		}
	}
	return true
}

// Some masters did what they were asked and nobody knows: the lease is neither longer
// nor over.
func TestALostReplyToAnExtensionCostsNothing(t *testing.T) {
	net := newNetwork(t, 5)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: 500 * time.Millisecond}, net.through())
	lease := acquireSoon(t, l, "k", time.Minute)
	before := lease.Validity()
	setAll(testenv.Mute, net.proxies[:3]...)
	if err := lease.Extend(t.Context()); !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrLost) {
		t.Errorf("three of five answers were lost: %v", err)
	}
	left := lease.Validity()
	if left <= 0 || left >= before {
		t.Errorf("validity %s after %s", left, before)
	}
	setAll(testenv.Pass, net.proxies[:3]...)
	eventually(t, "the lease is extended", func() bool { return lease.Extend(t.Context()) == nil })
	if v := lease.Validity(); v <= left {
		t.Errorf("validity %s after %s and an extension", v, left)
	}
}

func TestALostReplyToAReleaseFreesTheLock(t *testing.T) {
	net := newNetwork(t, 5)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: 500 * time.Millisecond}, net.through())
	lease := acquireSoon(t, l, "k", time.Minute)
	eventually(t, "all five grant it", func() bool { return lease.Evidence().Votes == 5 })
	setAll(testenv.Mute, net.proxies[:3]...)
	if err := lease.Release(); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Errorf("three of five answers were lost: %v", err)
	}
	acquireSoon(t, warm(t, ungated, urlsOf(net.masters)), "k", time.Minute)
}

// The keys last twice as long as the validity here, so the masters still have them, and
// agree, when it is over.
func TestAnExtensionThatIsGrantedTooLateIsNoOwnership(t *testing.T) {
	t.Parallel()
	net := newNetwork(t, 3)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: time.Minute, DriftFactor: 0.8}, net.through())
	lease := acquire(t, l, "k", 10*time.Second) // 2 s of validity
	held, stop := lease.Keep(t.Context(), redlock.Limits{Hold: time.Nanosecond})
	defer stop()
	setAll(testenv.Hang, net.proxies...)
	result := make(chan error)
	go func() { result <- lease.Extend(t.Context()) }()
	wantEnded(t, held)
	eventually(t, "validity is over", func() bool { return lease.Validity() <= 0 })
	setAll(testenv.Pass, net.proxies...)
	if err := <-result; !errors.Is(err, redlock.ErrLost) {
		t.Errorf("three of three agreed after the end: %v", err)
	}
	if v := lease.Validity(); v > 0 {
		t.Errorf("validity of %s came back", v)
	}
	if n := holders(t, operators(t, net.masters), "k"); n != 3 {
		t.Errorf("%d of three masters had the key when they agreed, so the test proves nothing", n)
	}
}

func TestOneFlushedMasterOfFiveIsNoLossAndAMajorityIs(t *testing.T) {
	t.Parallel()
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	l := warm(t, ungated, urlsOf(masters))
	lease := acquire(t, l, "k", 4*time.Second)
	eventually(t, "all five have granted it", func() bool { return lease.Evidence().Votes == 5 })
	order(t, servers[4], "FLUSHALL")
	if err := lease.Extend(t.Context()); err != nil {
		t.Fatalf("one of five forgot: %v", err)
	}
	eventually(t, "it has its key again", func() bool { return holders(t, servers, "k") == 5 })
	held, stop := lease.Keep(t.Context(), redlock.Limits{})
	defer stop()
	for _, s := range servers[:3] {
		order(t, s, "FLUSHALL")
	}
	wantEnded(t, held)
	if v := lease.Validity(); v < 500*time.Millisecond {
		t.Errorf("the context ended with %s of validity, want nearly the half of 4 s", v)
	}
	if err := lease.Extend(t.Context()); !errors.Is(err, redlock.ErrLost) {
		t.Errorf("three of five forgot: %v", err)
	}
	if n := holders(t, servers[:3], "k"); n != 0 {
		t.Errorf("%d keys were made anew without a quorum", n)
	}
}

// Two extensions in a row may both find a master that has lost its key.
func TestVotesAreNeverMoreThanMasters(t *testing.T) {
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	lease := acquire(t, warm(t, ungated, urlsOf(masters)), "k", time.Minute)
	for n := range 300 {
		if n%3 == 0 {
			order(t, servers[n/3%2], "FLUSHALL") // and three are a quorum
		}
		if err := lease.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := lease.Evidence(); e.Votes > e.Masters || e.Votes < 0 {
			t.Fatalf("%d votes of %d masters", e.Votes, e.Masters)
		}
	}
	eventually(t, "all five hold it", func() bool { return lease.Extend(t.Context()) == nil && holders(t, servers, "k") == 5 })
	eventually(t, "and have voted", func() bool { return lease.Evidence().Votes == 5 })
}

func TestAKeptLeaseSurvivesSCRIPTFLUSH(t *testing.T) {
	t.Parallel()
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	lease := acquire(t, warm(t, ungated, urlsOf(masters)), "k", 3*time.Second)
	held, stop := lease.Keep(t.Context(), redlock.Limits{})
	defer stop()
	for round := range 2 {
		for _, s := range servers {
			order(t, s, "SCRIPT", "FLUSH")
		}
		eventually(t, "it is extended", func() bool { return lease.Evidence().Extensions > round || held.Err() != nil })
	}
	if held.Err() != nil {
		t.Fatal(context.Cause(held))
	}
	stop()
	for _, s := range servers {
		order(t, s, "SCRIPT", "FLUSH")
	}
	_ = lease.Release()
	wantGone(t, servers, "k")
}

// Sixteen callers, two thousand locks, and one master of five that says nothing. What
// it costs is a queue with an end, and no goroutine or connection more.
func TestAHungMasterPilesUpNeitherGoroutinesNorConnections(t *testing.T) {
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: 10 * time.Second}, urlsOf(masters))
	masters[2].Stop()
	before, most := runtime.NumGoroutine(), 0
	var done atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for n := done.Add(1); n <= 2000; n = done.Add(1) {
				lease, err := l.Acquire(context.Background(), fmt.Sprint("k", n), time.Minute, "")
				if err != nil {
					t.Error(err)
					continue
				}
				if err := lease.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for done.Load() < 2000 {
		most = max(most, runtime.NumGoroutine())
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	if most > before+16+8 {
		t.Errorf("%d goroutines before, up to %d with 16 callers", before, most)
	}
	for i, s := range servers {
		if i == 2 {
			masters[2].Cont()
		}
		// Ours and the operator's.
		eventually(t, "few connections", func() bool { return connections(t, s) <= 2 })
	}
	eventually(t, "it has no key either", func() bool { return order(t, servers[2], "DBSIZE") == int64(0) })
}

func connections(t *testing.T, s *redis.Client) int {
	t.Helper()
	return strings.Count(fmt.Sprint(order(t, s, "CLIENT", "LIST", "TYPE", "normal")), "\n")
}
