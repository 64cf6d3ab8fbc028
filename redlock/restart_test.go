package redlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/redlock"
)

// E7. The first owner has three of five masters, since the others were away. One of the
// three forgets; the others are back. Without quarantine that makes three votes again.
// The second owner sees the restart on an open connection, the third for the first time.
func TestAMasterThatForgotCannotHelpASecondOwner(t *testing.T) {
	t.Parallel()
	net := newNetwork(t, 5)
	guard := redlock.Options{MaxTTL: 3 * time.Second, MasterTimeout: time.Second}
	first := newLocker(t, guard, net.through())
	second := warm(t, guard, urlsOf(net.masters))
	setAll(testenv.Refuse, net.proxies[3:]...)
	lease := acquireSoon(t, first, "k", 3*time.Second)
	if e := lease.Evidence(); e.Votes != 3 {
		t.Fatalf("%+v, want three votes", e)
	}
	net.masters[2].Kill()
	net.masters[2].Start()
	third := newLocker(t, guard, urlsOf(net.masters))
	for lease.Validity() > 0 {
		for name, other := range map[string]*redlock.Locker{"second": second, "third": third} {
			got, err := other.Acquire(t.Context(), "k", time.Second, "")
			if left := lease.Validity(); err == nil && left > 0 {
				t.Fatalf("a %s owner (%+v) while the first has %s of validity", name, got.Evidence(), left)
			}
		}
	}
	acquireSoon(t, second, "k", time.Second)
}

func TestQuarantineIsSeenInStatusWithItsEndAndReason(t *testing.T) {
	masters := testenv.Masters(t, 3)
	for _, c := range []struct {
		name  string
		opts  redlock.Options
		guard time.Duration // zero: none
	}{
		{"by itself as long as the longest TTL", redlock.Options{}, time.Minute},
		{"as long as another longest TTL", redlock.Options{MaxTTL: time.Hour}, time.Hour},
		{"as long as was said", redlock.Options{RestartGuard: 10 * time.Minute}, 10 * time.Minute},
		{"turned off", redlock.Options{RestartGuard: -1}, 0},
	} {
		c.opts.MasterTimeout = 5 * time.Second
		l := newLocker(t, c.opts, urlsOf(masters))
		before := time.Now()
		all, _ := l.Check(t.Context())
		for _, s := range all {
			if s.Role != "master" || s.RunID == "" || s.Version == "" || s.Name == "" {
				t.Errorf("%s: %+v", c.name, s)
			}
			// Masters tell their age in whole seconds, and a slow machine may be late.
			early, late := before.Add(c.guard-time.Minute/2), time.Now().Add(c.guard)
			switch off := c.guard == 0; {
			case off != s.Quarantined.IsZero() || off != (s.Why == ""):
				t.Errorf("%s: until %s because %q", c.name, s.Quarantined, s.Why)
			case !off && (s.Quarantined.Before(early) || s.Quarantined.After(late)):
				t.Errorf("%s: until %s, want %s or a little less", c.name, s.Quarantined, late)
			}
		}
		lease, err := l.Acquire(t.Context(), "k", time.Second, "")
		var none *redlock.NoQuorumError
		switch {
		case c.guard == 0 && err == nil:
			_ = lease.Release()
		case c.guard == 0 || !errors.As(err, &none) || len(none.Causes) != 3:
			t.Errorf("%s: %v", c.name, err)
		default:
			for _, cause := range none.Causes {
				if !strings.Contains(cause.Error(), "quarantine") {
					t.Errorf("%s: %v", c.name, cause)
				}
			}
		}
	}
}

// A restarted master may not help to make a lease, and may not be missed by those that
// are there: it is asked to extend and to release, and is not asked for a new vote.
func TestARestartIsNoticedOnTheConnectionAndEndsNoLease(t *testing.T) {
	t.Parallel()
	masters := testenv.Masters(t, 3)
	guard := redlock.Options{MaxTTL: time.Minute, RestartGuard: 2 * time.Second, MasterTimeout: 5 * time.Second}
	l := warm(t, guard, urlsOf(masters))
	eventually(t, "nobody is in quarantine", func() bool { return noQuarantine(l) })
	lease := acquire(t, l, "held", time.Minute)
	eventually(t, "all three grant it", func() bool { return lease.Evidence().Votes == 3 })
	was := l.Status()[0]
	masters[0].Kill()
	masters[0].Start()
	restarted := time.Now()
	var now redlock.Status
	eventually(t, "the restart is seen", func() bool {
		all, _ := l.Check(t.Context())
		now = all[0]
		return now.Err == nil && now.RunID != was.RunID
	})
	if end := now.Quarantined; end.Before(restarted.Add(guard.RestartGuard)) || now.Why == "" {
		t.Errorf("quarantined until %s because %q, restarted at %s", end, now.Why, restarted)
	}
	for i, s := range l.Status()[1:] {
		if !s.Quarantined.IsZero() {
			t.Errorf("master %d was not restarted: %+v", i+1, s)
		}
	}
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("two of three hold it: %v", err)
	}
	if err := lease.Release(); err != nil {
		t.Errorf("two of three had it: %v", err)
	}
	fresh := acquire(t, l, "new", time.Minute)
	if n := holders(t, operators(t, masters[:1]), "new"); time.Now().Before(now.Quarantined) && n != 0 {
		t.Error("a master in quarantine was given the key of a new lease")
	}
	eventually(t, "the quarantine ends by itself", func() bool { return l.Status()[0].Quarantined.IsZero() })
	if why := l.Status()[0].Why; why != "" {
		t.Errorf("its reason is still %q", why)
	}
	eventually(t, "it votes again", func() bool {
		_ = fresh.Release()
		fresh = acquire(t, l, "new", time.Minute)
		return holders(t, operators(t, masters[:1]), "new") == 1
	})
}

// Only another life of the server costs the vote, not another connection to it.
func TestALostConnectionIsNoRestart(t *testing.T) {
	t.Parallel()
	net := newNetwork(t, 3)
	guard := redlock.Options{MaxTTL: time.Minute, RestartGuard: 2 * time.Second, MasterTimeout: 5 * time.Second}
	l := newLocker(t, guard, net.through())
	acquireSoon(t, l, "k", time.Minute)
	eventually(t, "nobody is in quarantine", func() bool { return noQuarantine(l) })
	for _, p := range net.proxies {
		p.Cut()
	}
	eventually(t, "they are back", func() bool { _, err := l.Check(t.Context()); return err == nil && allWell(l) })
	if !noQuarantine(l) {
		t.Errorf("%+v", l.Status())
	}
	if _, err := l.Acquire(t.Context(), "other", time.Minute, ""); err != nil {
		t.Error(err)
	}
}

func noQuarantine(l *redlock.Locker) bool {
	for _, s := range l.Status() {
		if !s.Quarantined.IsZero() {
			return false
		}
	}
	return true
}
