package redlock_test

import (
	"fmt"
	"testing"
	"time"

	"quorate/internal/testenv"
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
