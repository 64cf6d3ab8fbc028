package redlock_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"strings"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/redlock"
)

// E10 and E17. All 32 ways in which five masters can have a key that is not ours: an
// old SETNX lock without a TTL, or a hash like Redisson's, which answers WRONGTYPE.
func TestAForeignKeyIsAHolderLikeAnyOther(t *testing.T) {
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	l := warm(t, ungated, urlsOf(masters))
	for _, kind := range []string{"string", "hash"} {
		for mask := range uint(32) {
			key := fmt.Sprintf("%s%05b", kind, mask)
			for i, s := range servers {
				switch {
				case mask>>i&1 == 0:
				case kind == "string":
					order(t, s, "SETNX", key, "theirs")
				default:
					order(t, s, "HSET", key, "uuid:1", "1")
				}
			}
			wantQuorumOfFree(t, l, key, 5-bits.OnesCount(mask))
			for i, s := range servers {
				if mask>>i&1 == 0 {
					wantGone(t, servers[i:i+1], key)
				} else if ttl, is := order(t, s, "PTTL", key), order(t, s, "TYPE", key); ttl != int64(-1) || is != kind {
					t.Errorf("%s: master %d has a %v for %v ms, want theirs without end", key, i, is, ttl)
				}
			}
		}
	}
}

// wantQuorumOfFree fails the test unless three free masters of five make a lock, with
// all that belongs to it, and fewer are a lock that somebody else has.
func wantQuorumOfFree(t *testing.T, l *redlock.Locker, key string, free int) {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key, time.Minute, "")
	switch {
	case free < 3 && (!errors.Is(err, redlock.ErrTaken) || errors.Is(err, redlock.ErrNoQuorum)):
		t.Errorf("%s: with %d masters free: %v", key, free, err)
	case free < 3:
	case err != nil:
		t.Errorf("%s: with %d masters free: %v", key, free, err)
	default:
		if err := lease.Extend(t.Context()); err != nil {
			t.Errorf("%s: extend: %v", key, err)
		}
		if err := lease.Release(); err != nil {
			t.Errorf("%s: release: %v", key, err)
		}
	}
}

// E17, the other way round: who locks with a hash is told that ours is none.
func TestWhoLocksWithAHashIsExcludedToo(t *testing.T) {
	masters := testenv.Masters(t, 3)
	servers := operators(t, masters)
	lease := acquire(t, warm(t, ungated, urlsOf(masters)), "k", time.Minute)
	eventually(t, "all three masters have granted it", func() bool { return lease.Evidence().Votes == 3 })
	for _, s := range servers {
		if err := s.HIncrBy(t.Context(), "k", "uuid:1", 1).Err(); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("HINCRBY on our key: %v", err)
		}
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

// E11 and E17. A client's wall clock in PXAT makes a lock that nobody has, and PEXPIRE
// with zero deletes; so what is sent is listened to, by the server's own account.
func TestTheWireCarriesNoWallClockAndNoZero(t *testing.T) {
	master := testenv.Masters(t, 1)[0]
	ear, err := net.Dial("tcp", master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer ear.Close()
	_ = ear.SetDeadline(time.Now().Add(soon))
	heard := bufio.NewReader(ear)
	if _, err := io.WriteString(ear, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	if ok, err := heard.ReadString('\n'); err != nil || ok != "+OK\r\n" {
		t.Fatalf("MONITOR: %q, %v", ok, err)
	}
	lease := acquire(t, warm(t, ungated, []string{master.URL()}), "k", 12345*time.Millisecond)
	if err := lease.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	order(t, operator(t, master), "ECHO", "that is all")
	var all []string
	for {
		line, err := heard.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "that is all") {
			break
		}
		all = append(all, line)
	}
	wire := strings.ToUpper(strings.Join(all, ""))
	for _, want := range []string{`"NX" "GET" "PX" "12345"`, `"PEXPIRE" "K"`, `"DEL" "K"`} {
		if !strings.Contains(wire, want) {
			t.Errorf("no %s was sent", want)
		}
	}
	for _, no := range []string{"PXAT", "EXAT", "EXPIREAT", fmt.Sprint(time.Now().Unix() / 1e4)} {
		for _, line := range all {
			if _, command, _ := strings.Cut(line, "] "); strings.Contains(strings.ToUpper(command), no) {
				t.Errorf("the wall clock was sent: %s", command)
			}
		}
	}
}

// E12. Two masters of four, or one of two, are no majority of either side.
func TestATiedVoteIsDecidedAtOnce(t *testing.T) {
	masters := testenv.Masters(t, 4)
	servers := operators(t, masters)
	opts := redlock.Options{RestartGuard: -1, MasterTimeout: time.Minute, AnyNumber: true}
	for _, n := range []int{2, 4} {
		l := warm(t, opts, urlsOf(masters[:n]))
		key := fmt.Sprint("k", n)
		for _, s := range servers[:n/2] {
			order(t, s, "SETNX", key, "theirs")
		}
		start := time.Now()
		_, err := l.Acquire(t.Context(), key, time.Minute, "")
		if !errors.Is(err, redlock.ErrTaken) || time.Since(start) > soon {
			t.Errorf("%d of %d taken: %v after %s", n/2, n, err, time.Since(start))
		}
		wantGone(t, servers[n/2:n], key)
	}
}

// E13. Both other keys are not ours; then one of them goes. What the first attempt got
// must not stand against the second.
func TestAnAttemptIsNotInTheWayOfTheNext(t *testing.T) {
	masters := testenv.Masters(t, 3)
	servers := operators(t, masters)
	l := warm(t, ungated, urlsOf(masters))
	order(t, servers[1], "SET", "k", "theirs")
	order(t, servers[2], "SET", "k", "another's")
	for range 50 {
		_, err := l.Acquire(t.Context(), "k", time.Minute, "")
		var taken *redlock.TakenError
		if !errors.As(err, &taken) || taken.Held {
			t.Fatalf("two masters are taken by different holders: %v (%+v)", err, taken)
		}
	}
	order(t, servers[1], "DEL", "k")
	if err := acquireSoon(t, l, "k", time.Minute).Release(); err != nil {
		t.Error(err)
	}
}

// E14. The masters agree when the lease that they grant would have ended.
func TestALockThatIsGrantedTooLateIsRefusedAndUndone(t *testing.T) {
	masters := testenv.Masters(t, 3)
	servers := operators(t, masters)
	l := warm(t, redlock.Options{RestartGuard: -1, MasterTimeout: time.Minute, MinValidity: 59 * time.Second}, urlsOf(masters))
	masters[0].Stop()
	masters[1].Stop()
	result := make(chan error)
	start := time.Now()
	go func() {
		_, err := l.Acquire(t.Context(), "k", time.Minute, "")
		result <- err
	}()
	eventually(t, "too little validity is left", func() bool { return time.Since(start) > time.Second })
	masters[0].Cont()
	masters[1].Cont()
	var late *redlock.ValidityError
	if err := <-result; !errors.As(err, &late) || !errors.Is(err, redlock.ErrValidity) || late.Left >= late.Want {
		t.Fatalf("%v (%+v)", err, late)
	}
	wantGone(t, servers, "k")
}

// E15. Somebody writes over our key on a majority: a SET without NX, as ForceWithContext
// of a peer does it. Half of the validity later it is known.
func TestAStolenKeyEndsTheContextWhileValidityLasts(t *testing.T) {
	t.Parallel()
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	lease := acquire(t, warm(t, ungated, urlsOf(masters)), "k", 4*time.Second)
	held, stop := lease.Keep(t.Context(), redlock.Limits{})
	defer stop()
	for _, s := range servers[:3] {
		order(t, s, "SET", "k", "thief")
	}
	wantEnded(t, held)
	if v := lease.Validity(); v < 500*time.Millisecond {
		t.Errorf("the context ended with %s of validity, want nearly the half of 4 s", v)
	}
	if err := lease.Release(); !errors.Is(err, redlock.ErrLost) {
		t.Errorf("release of a stolen lock: %v", err)
	}
	if n := holders(t, servers[:3], "k"); n != 3 {
		t.Errorf("the thief has %d of three keys after our release", n)
	}
	wantGone(t, servers[3:], "k")
}
