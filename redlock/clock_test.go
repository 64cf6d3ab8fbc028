package redlock

import (
	"testing"
	"time"

	"quorate/redlock/embedded"
)

// Go's monotonic clock stands still while a machine is suspended.
func TestAMachineThatSleptDoesNotBelieveInAnOldLease(t *testing.T) {
	m, err := embedded.Start(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	l, err := New(Options{RestartGuard: -1, MasterTimeout: 5 * time.Second}, m.URLs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	slept := time.Duration(0)
	l.boot = func() time.Duration { return sinceBoot() + slept }
	lease, err := l.Acquire(t.Context(), "k", 30*time.Second, "")
	if err != nil {
		t.Fatal(err)
	}
	slept = 20 * time.Second
	if v := lease.Validity(); v <= 0 || v > 10*time.Second {
		t.Errorf("after a sleep of 20 s: %s of 30 s left", v)
	}
	slept = time.Minute
	if v := lease.Validity(); v > 0 {
		t.Errorf("after a sleep of a minute: %s left", v)
	}
	if err := lease.Extend(t.Context()); err == nil {
		t.Error("a lease that ended during sleep was extended")
	}
}

func TestTheClockSinceBootRuns(t *testing.T) {
	before := sinceBoot()
	time.Sleep(5 * time.Millisecond)
	if ran := sinceBoot() - before; ran < 5*time.Millisecond {
		t.Errorf("it ran %s in 5 ms", ran)
	}
}
