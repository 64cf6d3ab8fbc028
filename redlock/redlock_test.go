package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/redlock"
	"quorate/redlock/embedded"
)

// ungated is how tests lock on servers that were started a moment ago, on a machine
// that may be slow: only where a test is about time is the time short.
var ungated = redlock.Options{RestartGuard: -1, MasterTimeout: 5 * time.Second}

// TestMain keeps the driver's words about faults made on purpose out of the way.
func TestMain(m *testing.M) {
	redlock.Silence()
	os.Exit(m.Run())
}

func newLocker(t *testing.T, opts redlock.Options, urls []string) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(opts, urls...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// overBoth runs a test on embedded masters and on real ones.
func overBoth(t *testing.T, test func(t *testing.T, urls []string)) {
	t.Run("embedded", func(t *testing.T) {
		m, err := embedded.Start(5)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		test(t, m.URLs())
	})
	t.Run("redis", func(t *testing.T) {
		test(t, urlsOf(testenv.Masters(t, 5)))
	})
}

func urlsOf(masters []*testenv.Redis) []string {
	urls := make([]string, len(masters))
	for i, m := range masters {
		urls[i] = m.URL()
	}
	return urls
}

func TestAHeldLockIsTakenAndItsNoteSaysBy(t *testing.T) {
	overBoth(t, func(t *testing.T, urls []string) {
		a, b := newLocker(t, ungated, urls), newLocker(t, ungated, urls)
		lease, err := a.Acquire(t.Context(), "k", 5*time.Second, "restock@noon by a")
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Acquire(t.Context(), "k", 5*time.Second, "")
		var taken *redlock.TakenError
		if !errors.As(err, &taken) || !errors.Is(err, redlock.ErrTaken) || !taken.Held || taken.Note != "restock@noon by a" {
			t.Fatalf("second owner got %v (%+v)", err, taken)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		// At once the vote may be split: a release returns when a quorum has done it.
		if err := acquireSoon(t, b, "k", 5*time.Second).Release(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNeverTwoOwnersAtOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, urls []string) {
		var owners, grants atomic.Int32
		var wg sync.WaitGroup
		deadline := time.Now().Add(time.Second)
		for i := range 4 {
			l := newLocker(t, ungated, urls)
			wg.Go(func() {
				for n := 0; time.Now().Before(deadline); n++ {
					lease, err := l.Acquire(context.Background(), "one", time.Second, fmt.Sprint(i))
					if err != nil {
						continue
					}
					if owners.Add(1) != 1 {
						t.Error("two owners at once")
					}
					grants.Add(1)
					owners.Add(-1)
					if err := lease.Release(); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
		wg.Wait()
		if grants.Load() == 0 {
			t.Error("nobody ever got the lock")
		}
	})
}

func TestValidityIsCountedFromBeforeTheFirstRequestLessDrift(t *testing.T) {
	overBoth(t, func(t *testing.T, urls []string) {
		l := newLocker(t, ungated, urls)
		before := time.Now()
		lease, err := l.Acquire(t.Context(), "k", 10*time.Second, "")
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release()
		most := 10*time.Second - 100*time.Millisecond - 2*time.Millisecond
		spent := time.Since(before)
		if v := lease.Validity(); v > most || v < most-spent-time.Second {
			t.Errorf("validity %s after %s, want at most %s", v, spent, most)
		}
		if e := lease.Evidence(); e.Votes < 3 || e.Masters != 5 || e.Granted > most {
			t.Errorf("evidence %+v", e)
		}
	})
}

func TestKeptLeaseOutlivesItsTTLAndEndsWithStop(t *testing.T) {
	overBoth(t, func(t *testing.T, urls []string) {
		l, other := newLocker(t, ungated, urls), newLocker(t, ungated, urls)
		const ttl = time.Second
		lease, err := l.Acquire(t.Context(), "k", ttl, "")
		if err != nil {
			t.Fatal(err)
		}
		held, stop := lease.Keep(t.Context(), redlock.Limits{})
		defer stop()
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if held.Err() != nil {
				t.Fatalf("ended after %d extensions: %v", lease.Evidence().Extensions, context.Cause(held))
			}
			if _, err := other.Acquire(t.Context(), "k", ttl, ""); !errors.Is(err, redlock.ErrTaken) {
				t.Fatalf("another client got %v", err)
			}
		}
		if n := lease.Evidence().Extensions; n < 2 {
			t.Errorf("%d extensions in twice the TTL", n)
		}
		stop()
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestKeptContextEndsBeforeAnotherClientCanOwn(t *testing.T) {
	masters := testenv.Masters(t, 5)
	urls := urlsOf(masters)
	proxies := make([]*testenv.Proxy, 5)
	through := make([]string, 5)
	for i, m := range masters {
		proxies[i] = testenv.NewProxy(t, m.Addr())
		through[i] = "redis://" + proxies[i].Addr()
	}
	cut, free := newLocker(t, ungated, through), newLocker(t, ungated, urls)
	lease, err := cut.Acquire(t.Context(), "k", 2*time.Second, "")
	if err != nil {
		t.Fatal(err)
	}
	held, stop := lease.Keep(t.Context(), redlock.Limits{})
	defer stop()
	for _, p := range proxies {
		p.Set(testenv.Hang)
	}
	for {
		next, err := free.Acquire(t.Context(), "k", 2*time.Second, "")
		if errors.Is(err, redlock.ErrTaken) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if held.Err() == nil {
			t.Error("another client owns the lock and the old context has not ended")
		}
		if !errors.Is(context.Cause(held), redlock.ErrLost) {
			t.Errorf("cause %v", context.Cause(held))
		}
		_ = next.Release()
		return
	}
}

func TestOneHungMasterHoldsNobodyUp(t *testing.T) {
	masters := testenv.Masters(t, 5)
	opts := redlock.Options{RestartGuard: -1, MasterTimeout: 20 * time.Second}
	l := newLocker(t, opts, urlsOf(masters))
	if _, err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	masters[2].Stop()
	for _, name := range []string{"while the connection is open", "when it must be opened anew"} {
		start := time.Now()
		lease, err := l.Acquire(t.Context(), "k", time.Minute, "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := lease.Extend(t.Context()); err != nil {
			t.Errorf("%s: extend: %v", name, err)
		}
		if err := lease.Release(); err != nil {
			t.Errorf("%s: release: %v", name, err)
		}
		if took := time.Since(start); took > opts.MasterTimeout/2 {
			t.Errorf("%s: acquire, extend and release took %s", name, took)
		}
		l = newLocker(t, opts, urlsOf(masters))
	}
}

func TestWithoutAQuorumTheErrorNamesEachMasterAndWhy(t *testing.T) {
	masters := testenv.Masters(t, 5)
	l := newLocker(t, redlock.Options{RestartGuard: -1, MasterTimeout: 500 * time.Millisecond}, urlsOf(masters))
	if _, err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	masters[0].Kill()
	masters[1].Kill()
	masters[4].Stop()
	_, err := l.Check(t.Context())
	var none *redlock.NoQuorumError
	if !errors.As(err, &none) || len(none.Causes) != 3 || none.Need != 3 || none.Of != 5 {
		t.Fatalf("check: %v", err)
	}
	_, err = l.Acquire(t.Context(), "k", time.Second, "")
	if !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrTaken) {
		t.Fatalf("acquire: %v", err)
	}
	t.Log(err)
}

func TestAFailedAttemptLeavesNoKeyOnMastersThatWakeLate(t *testing.T) {
	masters := testenv.Masters(t, 5)
	l := newLocker(t, redlock.Options{RestartGuard: -1, MasterTimeout: 500 * time.Millisecond}, urlsOf(masters))
	if _, err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range masters[:3] {
		m.Stop()
	}
	if _, err := l.Acquire(t.Context(), "k", 30*time.Second, "ghost"); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Fatalf("acquire with three hung masters: %v", err)
	}
	for _, m := range masters[:3] {
		m.Cont()
	}
	next := newLocker(t, ungated, urlsOf(masters))
	for deadline := time.Now().Add(5 * time.Second); ; {
		lease, err := next.Acquire(t.Context(), "k", time.Second, "")
		if err == nil && lease.Evidence().Votes >= 3 {
			_ = lease.Release()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a key of 30 s outlived its attempt: %v", err)
		}
	}
}

func TestACancelledAttemptLeavesNoKey(t *testing.T) {
	masters := testenv.Masters(t, 5)
	l, next := newLocker(t, ungated, urlsOf(masters)), newLocker(t, ungated, urlsOf(masters))
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if lease, err := l.Acquire(ctx, "k", 30*time.Second, ""); err == nil {
			_ = lease.Release()
		}
		cancel()
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		lease, err := next.Acquire(t.Context(), "k", time.Second, "")
		if err == nil {
			_ = lease.Release()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestARestartedMasterGetsNoVoteUntilEveryOldLeaseHasEnded(t *testing.T) {
	masters := testenv.Masters(t, 3)
	guard := redlock.Options{MaxTTL: 3 * time.Second, RestartGuard: 3 * time.Second, MasterTimeout: time.Second}
	l := newLocker(t, guard, urlsOf(masters))
	// The servers are young, so at first nobody can lock: they may all have forgotten.
	if _, err := l.Acquire(t.Context(), "k", 3*time.Second, ""); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Fatalf("on three servers that have just been started: %v", err)
	}
	lease := acquireSoon(t, l, "k", 3*time.Second)
	// One of the masters that hold the key forgets it, and one that does not hold it
	// is away: without quarantine two votes would be had again.
	masters[0].Kill()
	masters[0].Start()
	masters[1].Kill()
	masters[1].Start()
	other := newLocker(t, guard, urlsOf(masters))
	for lease.Validity() > 0 {
		second, err := other.Acquire(t.Context(), "k", 3*time.Second, "")
		if left := lease.Validity(); err == nil && left > 0 {
			t.Fatalf("a second owner (%+v) while the first has %s of validity left", second.Evidence(), left)
		}
	}
	acquireSoon(t, other, "k", time.Second)
}

func acquireSoon(t *testing.T, l *redlock.Locker, key string, ttl time.Duration) *redlock.Lease {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		lease, err := l.Acquire(t.Context(), key, ttl, "")
		if err == nil {
			return lease
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestOneServerUnderTwoAddressesVotesOnce(t *testing.T) {
	masters := testenv.Masters(t, 2)
	alias := testenv.NewProxy(t, masters[0].Addr())
	l := newLocker(t, ungated, []string{masters[0].URL(), "redis://" + alias.Addr(), masters[1].URL()})
	all, err := l.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, s := range all {
		if s.Err != nil {
			refused++
			t.Log(s.Err)
		}
	}
	if refused != 1 {
		t.Errorf("%d of three masters refused, want the doubled one", refused)
	}
}

func TestBadInputIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	const secret = "hunter2"
	for name, urls := range map[string][]string{
		"no masters":  {},
		"even number": {"redis://a:1", "redis://b:1"},
		"twice":       {"redis://a:1", "redis://a:1", "redis://b:1"},
		"not redis":   {"http://u:" + secret + "@a:1"},
		"bad escape":  {"redis://u:" + secret + "%zz@a:1"},
	} {
		l, err := redlock.New(redlock.Options{}, urls...)
		if err == nil {
			l.Close()
			t.Errorf("%s: accepted", name)
			continue
		}
		if s := err.Error(); len(s) == 0 || strings.Contains(s, secret) {
			t.Errorf("%s: %s", name, s)
		}
	}
	m, err := embedded.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	l := newLocker(t, ungated, m.URLs())
	for _, bad := range []struct {
		key string
		ttl time.Duration
	}{{"", time.Second}, {string(make([]byte, 513)), time.Second}, {"k", 0}, {"k", 9 * time.Millisecond}, {"k", time.Hour}} {
		if _, err := l.Acquire(t.Context(), bad.key, bad.ttl, ""); err == nil {
			t.Errorf("key of %d bytes for %s: accepted", len(bad.key), bad.ttl)
		}
	}
}
