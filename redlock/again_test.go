package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"quorate/internal/testenv"
	"quorate/redlock"
)

// Its SETs are still on their way when the caller has given up and tries again.
func TestAnAttemptThatWasGivenUpIsNotInTheWayOfTheNext(t *testing.T) {
	net := newNetwork(t, 5)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: time.Minute}, net.through())
	for range 20 {
		setAll(testenv.Hang, net.proxies...)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := l.Acquire(ctx, "k", time.Minute, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("nobody answered: %v", err)
		}
		cancel()
		setAll(testenv.Pass, net.proxies...)
		lease := acquire(t, l, "k", time.Minute)
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	}
	wantGone(t, operators(t, net.masters), "k")
}

func TestServersThatForgetTheScriptsAreTaughtThem(t *testing.T) {
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: 5 * time.Second}, urlsOf(masters))
	lease := acquire(t, l, "k", time.Minute)
	forget := func() {
		for _, s := range servers {
			order(t, s, "SCRIPT", "FLUSH")
		}
	}
	forget()
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("extend: %v", err)
	}
	forget()
	if err := lease.Release(); err != nil {
		t.Errorf("release: %v", err)
	}
	wantGone(t, servers, "k")
}

// The SET stands in the socket of a server that hangs for longer than the key would
// have lived, and the connection that it came on is gone.
func TestASETThatIsReadAfterItsTTLLeavesNoGhost(t *testing.T) {
	net := newNetwork(t, 3)
	servers := operators(t, net.masters)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: 300 * time.Millisecond}, net.through())
	other := acquire(t, l, "another", time.Minute)
	eventually(t, "all three grant it", func() bool { return other.Evidence().Votes == 3 })
	before := info(t, servers[0], "commandstats")
	net.masters[0].Stop()
	const ttl = time.Second
	lease := acquire(t, l, "k", ttl)
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	net.proxies[0].Cut()
	time.Sleep(ttl + 1500*time.Millisecond) // also until what waits for a connection has waited in vain
	net.masters[0].Cont()
	if !strings.Contains(before, "cmdstat_set:calls=1,") {
		t.Fatal(before)
	}
	eventually(t, "the SET is read", func() bool {
		return strings.Contains(info(t, servers[0], "commandstats"), "cmdstat_set:calls=2,")
	})
	eventually(t, "the key is gone", func() bool { return holders(t, servers[:1], "k") == 0 })
	if stats := info(t, servers[0], "stats"); !strings.Contains(stats, "expired_keys:0") {
		t.Error("only its TTL removed the key")
	}
}

// What a failed extension has prolonged is there for longer than the lease said.
func TestAReleaseAfterAFailedExtensionMindsTheKeysThatItProlonged(t *testing.T) {
	net := newNetwork(t, 3)
	servers := operators(t, net.masters)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: 300 * time.Millisecond}, net.through())
	lease := acquireSoon(t, l, "k", 5*time.Second)
	eventually(t, "half of its time is over", func() bool { return lease.Validity() < 2500*time.Millisecond })
	setAll(testenv.Mute, net.proxies...)
	if err := lease.Extend(t.Context()); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Fatalf("no answer came: %v", err)
	}
	setAll(testenv.Hang, net.proxies...)
	if err := lease.Release(); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Fatalf("nobody answered: %v", err)
	}
	time.Sleep(3700 * time.Millisecond) // until the first TTL is over, and what waits for a connection has waited in vain
	setAll(testenv.Pass, net.proxies...)
	wantGone(t, servers, "k")
	for i, s := range servers {
		if !strings.Contains(info(t, s, "stats"), "expired_keys:0") {
			t.Errorf("master %d: only its TTL removed the key", i+1)
		}
	}
}

func info(t *testing.T, server *redis.Client, section string) string {
	t.Helper()
	text, err := server.Info(t.Context(), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Two masters of five have forgotten the key, and two do not answer: three may have it.
func TestALeaseIsNotLostWhileAMajorityMayHaveItsKey(t *testing.T) {
	net := newNetwork(t, 5)
	servers := operators(t, net.masters)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: time.Second}, net.through())
	lease := acquire(t, l, "k", time.Minute)
	eventually(t, "all five grant it", func() bool { return lease.Evidence().Votes == 5 })
	for _, s := range servers[:2] {
		order(t, s, "FLUSHALL")
	}
	setAll(testenv.Hang, net.proxies[3:]...)
	err := lease.Extend(t.Context())
	if !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrLost) {
		t.Fatalf("extend: %v", err)
	}
	if !strings.Contains(err.Error(), "no longer has the key") || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("it does not say what the masters said: %v", err)
	}
	setAll(testenv.Pass, net.proxies[3:]...)
	eventually(t, "it is extended", func() bool { return lease.Extend(t.Context()) == nil })
	order(t, servers[2], "FLUSHALL")
}

func TestReleasingALeaseThatHasEndedSaysSo(t *testing.T) {
	masters := testenv.Masters(t, 3)
	l := warm(t, redlock.Options{RestartGuard: -1, DriftFactor: 0.5}, urlsOf(masters))
	lease := acquire(t, l, "k", 400*time.Millisecond) // the keys live on when it has ended
	eventually(t, "it has ended", func() bool { return lease.Validity() <= 0 })
	if err := lease.Release(); !errors.Is(err, redlock.ErrLost) {
		t.Errorf("release: %v", err)
	}
	wantGone(t, operators(t, masters), "k")
}

func TestKeepEndsAtItsLimits(t *testing.T) {
	masters := testenv.Masters(t, 3)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: time.Second}, urlsOf(masters))
	for name, c := range map[string]struct {
		limits redlock.Limits
		says   string
	}{
		"extensions": {redlock.Limits{Extensions: 2}, "2 times, the most allowed"},
		"time":       {redlock.Limits{Hold: 300 * time.Millisecond}, "300ms, the longest allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			const ttl = 400 * time.Millisecond
			begun := time.Now()
			lease := acquire(t, l, "k", ttl)
			held, stop := lease.Keep(t.Context(), c.limits)
			defer stop()
			wantEnded(t, held)
			if why := context.Cause(held); !strings.Contains(why.Error(), c.says) {
				t.Errorf("it ended because %v", why)
			}
			if n := lease.Evidence().Extensions; n == 0 || c.limits.Extensions > 0 && n != c.limits.Extensions {
				t.Errorf("%d extensions", n)
			}
			if held := time.Since(begun); held < ttl {
				t.Errorf("it was held for %s, not to the end of the last extension", held)
			}
			_ = lease.Release()
		})
	}
}

// What is over when its turn comes is not asked of it any more.
func TestAMasterThatIsBehindIsNotAskedWhatIsOver(t *testing.T) {
	masters := testenv.Masters(t, 3)
	server := operator(t, masters[0])
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: time.Second}, urlsOf(masters))
	masters[0].Stop()
	for range 500 {
		if err := acquire(t, l, "k", time.Minute).Release(); err != nil {
			t.Fatal(err)
		}
	}
	masters[0].Cont()
	eventually(t, "it answers", func() bool { return allWell(l) })
	wantGone(t, []*redis.Client{server}, "k")
	if stats := info(t, server, "commandstats"); !strings.Contains(stats, "cmdstat_set:calls=1,") {
		t.Errorf("of 500 locks, the first was all it was to hear of: %s", stats)
	}
}
