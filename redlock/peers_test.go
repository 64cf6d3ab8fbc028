package redlock_test

// The failures that were measured in other lock libraries, E1 to E17, each a test
// here, or beside the mechanism that prevents it:
//
//	E1   a hung master costs seconds           TestOneHungMasterHoldsNobodyUp, TestNoMasterCostsMoreThanItsTimeout
//	E2   a short lease cannot be extended      TestAShortLeaseIsKeptBesideAHungMaster
//	E3   failed attempts leave keys            TestFailedAttemptsLeaveNoKeyOnFreeMasters
//	E4   so does the caller's dead context     TestAnAttemptThatItsCallerGaveUpLeavesNoKey, TestADeadContextAsksNobody
//	E5   a master that wakes late has a ghost  TestAnAttemptThatItsCallerGaveUpLeavesNoKey, TestAFailedAttemptLeavesNoKeyOnMastersThatWakeLate
//	E6   extending revives an expired lock     TestAnExpiredLeaseIsNotRevived, TestAnExtensionNeverMakesALostLockAnew
//	E7   a restart helps a second owner        TestAMasterThatForgotCannotHelpASecondOwner
//	E8   a reused lock deletes the next one    TestAnOldLeaseNeverTouchesTheNext (a Lease is not reused: each has its token)
//	E9   the holder learns of its loss late    TestNobodyOwnsBeforeTheOldContextHasEnded
//	E10  a foreign key on one slot blocks      TestAForeignKeyIsAHolderLikeAnyOther
//	E11  wall clocks and zeros on the wire     TestTheWireCarriesNoWallClockAndNoZero
//	E12  a tied vote hangs                     TestATiedVoteIsDecidedAtOnce
//	E13  an attempt is in its own way          TestAnAttemptIsNotInTheWayOfTheNext (we have no retries inside Acquire)
//	E14  a lock is born expired                TestALockThatIsGrantedTooLateIsRefusedAndUndone
//	E15  a stolen key goes unnoticed           TestAStolenKeyEndsTheContextWhileValidityLasts
//	E16  throughput                            bench/lock, which is a measurement and no test
//	E17  what Redis itself does                TestAForeignKeyIsAHolderLikeAnyOther (WRONGTYPE), TestTheWireCarriesNoWallClockAndNoZero (SET NX GET)

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/redlock"
)

// E1. Three hung masters decide a vote by their silence; even that takes no longer.
func TestNoMasterCostsMoreThanItsTimeout(t *testing.T) {
	masters := testenv.Masters(t, 5)
	opts := redlock.Options{RestartGuard: -1, MasterTimeout: 300 * time.Millisecond}
	l := warm(t, opts, urlsOf(masters))
	lease := acquireSoon(t, l, "held", time.Minute)
	for _, m := range masters[:3] {
		m.Stop()
	}
	for name, ask := range map[string]func() error{
		"acquire": func() error { _, err := l.Acquire(t.Context(), "k", time.Minute, ""); return err },
		"extend":  func() error { return lease.Extend(t.Context()) },
		"release": lease.Release,
	} {
		start := time.Now()
		err := ask()
		if took := time.Since(start); took > opts.MasterTimeout+3*time.Second {
			t.Errorf("%s took %s", name, took)
		}
		if name != "release" && !errors.Is(err, redlock.ErrNoQuorum) && !errors.Is(err, redlock.ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// E2. The peer failed to extend after five TTLs, when four of five had agreed at once.
func TestAShortLeaseIsKeptBesideAHungMaster(t *testing.T) {
	masters := testenv.Masters(t, 5)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: 20 * time.Second}, urlsOf(masters))
	lease := acquire(t, l, "k", 2*time.Second)
	masters[1].Stop()
	for range 20 {
		if err := lease.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

// E3.
func TestFailedAttemptsLeaveNoKeyOnFreeMasters(t *testing.T) {
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	for _, s := range servers[:3] {
		order(t, s, "SETNX", "k", "theirs")
	}
	l := warm(t, ungated, urlsOf(masters))
	for range 500 {
		_, err := l.Acquire(t.Context(), "k", time.Minute, "ours")
		if !errors.Is(err, redlock.ErrTaken) {
			t.Fatal(err)
		}
	}
	wantGone(t, servers[3:], "k")
	for i, s := range servers[:3] {
		if v, ttl := order(t, s, "GET", "k"), order(t, s, "PTTL", "k"); v != "theirs" || ttl != int64(-1) {
			t.Errorf("master %d has %v for %v, want theirs without end", i, v, ttl)
		}
	}
}

// E4 and E5. The keys of a minute are looked for where the attempt got through, and
// where it gets through only after everybody has gone.
func TestAnAttemptThatItsCallerGaveUpLeavesNoKey(t *testing.T) {
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: time.Minute}, urlsOf(masters))
	for _, m := range masters[:3] {
		m.Stop()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := l.Acquire(ctx, "k", time.Minute, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("it ended with %v, want the caller's deadline", err)
	}
	wantGone(t, servers[3:], "k")
	for _, m := range masters[:3] {
		m.Cont()
	}
	// The answer to a later question proves that the SET was done.
	if _, err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers[:3] {
		if !strings.Contains(fmt.Sprint(order(t, s, "INFO", "commandstats")), "cmdstat_set:") {
			t.Fatal("the SET never came, so nothing is proven")
		}
	}
	wantGone(t, servers, "k")
	if lease := acquire(t, l, "k", time.Minute); lease.Validity() < 30*time.Second {
		t.Errorf("validity %s", lease.Validity())
	}
}

// E4. Who has given up before asking is not given a lock, nor is anybody asked.
func TestADeadContextAsksNobody(t *testing.T) {
	masters := testenv.Masters(t, 3)
	l := warm(t, ungated, urlsOf(masters))
	why := errors.New("not needed any more")
	dead, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for range 200 {
		if _, err := l.Acquire(dead, "k", time.Minute, ""); !errors.Is(err, why) {
			t.Fatal(err)
		}
	}
	for _, s := range operators(t, masters) {
		if strings.Contains(fmt.Sprint(order(t, s, "INFO", "commandstats")), "cmdstat_set:") {
			t.Error("a SET was sent")
		}
	}
}

// E6. Extending after the end is refused whether another owner is there, came and
// went, or never was; and leaves everything as it is.
func TestAnExpiredLeaseIsNotRevived(t *testing.T) {
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	a, b := warm(t, ungated, urlsOf(masters)), warm(t, ungated, urlsOf(masters))
	var old *redlock.Lease
	for old == nil { // on a machine under load, half of a short TTL may pass first
		old, _ = a.Acquire(t.Context(), "k", 300*time.Millisecond, "")
	}
	eventually(t, "the TTL is over", func() bool { return old.Validity() <= 0 && holders(t, servers, "k") == 0 })
	refused := func(when string) {
		if err := old.Extend(t.Context()); !errors.Is(err, redlock.ErrLost) {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("nobody has it")
	next := acquire(t, b, "k", time.Minute)
	refused("another has it")
	if err := old.Release(); !errors.Is(err, redlock.ErrLost) {
		t.Errorf("release of an expired lease: %v", err)
	}
	if err := next.Extend(t.Context()); err != nil {
		t.Errorf("the next owner: %v", err)
	}
	if err := next.Release(); err != nil {
		t.Error(err)
	}
	wantGone(t, servers, "k")
	refused("another had it")
	if n := holders(t, servers, "k"); n != 0 {
		t.Errorf("%d keys were made anew", n)
	}
}

// E8. With one master, each wrong DEL shows at once.
func TestAnOldLeaseNeverTouchesTheNext(t *testing.T) {
	masters := testenv.Masters(t, 1)
	l := warm(t, ungated, urlsOf(masters))
	var grants atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var late sync.WaitGroup
			defer late.Wait()
			for grants.Load() < 1000 {
				lease, err := l.Acquire(context.Background(), "k", time.Minute, "")
				if errors.Is(err, redlock.ErrTaken) {
					continue
				}
				if err == nil {
					grants.Add(1)
					err = lease.Extend(context.Background())
				}
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 { // the first gives it back, the others meet the next owner
					late.Go(func() { _ = lease.Release() })
				}
			}
		})
	}
	wg.Wait()
}

// E9. Forty holders, cut off from every master at any point between two extensions.
func TestNobodyOwnsBeforeTheOldContextHasEnded(t *testing.T) {
	t.Parallel()
	net := newNetwork(t, 5)
	opts := redlock.Options{RestartGuard: -1, MasterTimeout: 5 * time.Second, DriftFactor: 0.1}
	cut, free := warm(t, opts, net.through()), warm(t, opts, urlsOf(net.masters))
	const ttl = 3 * time.Second
	type kept struct {
		key  string
		held context.Context
	}
	var all []kept
	for i := range 40 {
		lease := acquire(t, cut, fmt.Sprint("k", i), ttl)
		held, stop := lease.Keep(t.Context(), redlock.Limits{})
		defer stop()
		all = append(all, kept{lease.Key(), held})
		if i%4 == 0 { // so that their extensions are not due together
			time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
		}
	}
	time.Sleep(time.Duration(rand.Int64N(int64(ttl / 2)))) // when: anywhere in a round
	setAll(testenv.Hang, net.proxies...)
	var wg sync.WaitGroup
	for _, k := range all {
		wg.Go(func() {
			for deadline := time.Now().Add(soon); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				_, err := free.Acquire(context.Background(), k.key, ttl, "")
				if err != nil {
					continue
				}
				if k.held.Err() == nil {
					t.Errorf("%s has a new owner, and the old context has not ended", k.key)
				} else if why := context.Cause(k.held); !errors.Is(why, redlock.ErrLost) {
					t.Errorf("%s ended because of %v", k.key, why)
				}
				return
			}
			t.Errorf("%s was never free again", k.key)
		})
	}
	wg.Wait()
}
