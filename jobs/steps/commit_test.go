package steps_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"quorate/jobs"
)

// The number of commits can be raised: QUORATE_TEST_ROUNDS=1000.
func TestLostAnswerToCommitIsLookedUp(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, tap := through(t, newTarget(t, kind))
			var cut atomic.Int64
			n, there := rounds(40), 0
			for round := range n {
				before, after := round%3 == 0, rand.N(2*time.Millisecond)
				tap.set(&trap{"COMMIT", 1, func(l *line, pass func()) {
					l.mute.Store(true)
					if !before {
						pass()
					}
					if round%3 == 1 { // the cut may overtake it
						_ = l.server.(*net.TCPConn).SetLinger(0)
					} else {
						time.Sleep(after)
					}
					l.client.Close()
					l.server.Close()
					cut.Add(1)
				}})
				h := holdOf(int64(round+1), jobs.Fence(round+1), sqlStep(insert))
				h.Run.Due = due.Add(time.Duration(round) * time.Minute)
				got := db.run(t, h)
				switch {
				case got.Status == jobs.Succeeded:
					there++
				case got.Status != jobs.Failed || got.Reason != jobs.ReasonStep:
					t.Errorf("round %d: %s(%s): %s", round, got.Status, got.Reason, got.Error)
				}
				if before && got.Status == jobs.Succeeded {
					t.Errorf("round %d succeeded, and the server never had its COMMIT", round)
				}
				if count := db.effects(t); count != fmt.Sprint(there) {
					t.Fatalf("round %d ended as %s, and %s effects are there, not %d", round, got.Status, count, there)
				}
			}
			if int(cut.Load()) != n {
				t.Errorf("only %d of %d commits were cut", cut.Load(), n)
			}
			t.Logf("%d commits were cut, %d of them had landed: all of them known", n, there)
		})
	}
}

func TestCommitThatCannotBeLookedUpIsUnknown(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, tap := through(t, newTarget(t, kind))
			tap.set(&trap{"COMMIT", 1, func(l *line, pass func()) {
				tap.closed.Store(true)
				l.mute.Store(true)
				pass()
				l.client.Close()
			}})
			db.exec.LookUp = 300 * time.Millisecond
			got := db.run(t, holdOf(1, 7, sqlStep(insert)))
			want(t, got, jobs.Unknown, jobs.ReasonOutcome, "the answer to COMMIT never came")
		})
	}
}

func TestCommitThatTheServerStillWaitsForIsSettled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, tap := through(t, newTarget(t, kind))
			tap.set(&trap{"COMMIT", 1, func(l *line, _ func()) {
				l.client.Close()
				<-l.hungUp
			}})
			h := holdOf(1, 7, sqlStep(insert))
			if kind == "mysql" { // the server gives up by itself
				h.Validity = func() time.Duration { return time.Second }
			} else { // we make it, well before it would
				db.exec.LookUp = 3 * time.Second
			}
			want(t, db.run(t, h), jobs.Failed, jobs.ReasonStep, "not committed")
			wantEffects(t, db, "0")
		})
	}
}
