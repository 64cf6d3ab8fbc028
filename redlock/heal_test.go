package redlock_test

import (
	"errors"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/redlock"
)

func TestAnExtensionGivesLostKeysBackAndAMajorityLostIsTheEnd(t *testing.T) {
	masters := testenv.Masters(t, 5)
	l := newLocker(t, ungated, urlsOf(masters))
	lease, err := l.Acquire(t.Context(), "k", 30*time.Second, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range masters[:2] {
		m.Kill()
		m.Start()
	}
	votes := func() int { return lease.Evidence().Votes }
	for deadline := time.Now().Add(10 * time.Second); votes() < 5 || lease.Evidence().Extensions < 2; time.Sleep(10 * time.Millisecond) {
		if err := lease.Extend(t.Context()); err != nil {
			t.Fatalf("with two of five keys lost: %v", err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d votes after the extensions", votes())
		}
	}
	// The keys that were given back count when the others go.
	for _, m := range masters[2:4] {
		m.Kill()
	}
	if err := lease.Extend(t.Context()); err != nil {
		t.Fatalf("held up by the keys that were given back: %v", err)
	}
	for _, m := range masters[:3] {
		m.Kill()
	}
	if err := lease.Extend(t.Context()); err == nil {
		t.Fatal("extended with one master of five")
	}
}

func TestAnExtensionNeverMakesALostLockAnew(t *testing.T) {
	masters := testenv.Masters(t, 5)
	a, b := newLocker(t, ungated, urlsOf(masters)), newLocker(t, ungated, urlsOf(masters))
	lease, err := a.Acquire(t.Context(), "k", 30*time.Second, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range masters { // a majority forgets
		m.Kill()
		m.Start()
	}
	if err := lease.Extend(t.Context()); err == nil {
		t.Fatal("extended though nobody holds the key")
	}
	acquireSoon(t, b, "k", time.Second)
	if err := lease.Extend(t.Context()); !errors.Is(err, redlock.ErrLost) {
		t.Fatalf("extended over another owner: %v", err)
	}
}
