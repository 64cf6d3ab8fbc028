package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/jobs"
	"quorate/store"
	"quorate/store/postgres"
)

// cuts are the ways to lose the connection on which a commit is under way, each
// from the call on. happened polls until the commit has.
var cuts = []struct {
	name string
	cut  func(proxy *testenv.Proxy, happened func())
}{
	{"after the commit, before its answer", func(proxy *testenv.Proxy, happened func()) {
		happened()
		proxy.Set(testenv.Pass) // leaving Mute cuts what is open
	}},
	{"before the server has heard of it", func(proxy *testenv.Proxy, _ func()) {
		time.Sleep(time.Millisecond)
		proxy.Cut()
		proxy.Set(testenv.Pass)
	}},
	{"at any moment", func(proxy *testenv.Proxy, _ func()) {
		time.Sleep(rand.N(2 * time.Millisecond))
		proxy.Cut()
	}},
}

var cutFrom = []testenv.Mode{testenv.Mute, testenv.Hang, testenv.Pass}

// cutOff does what commits while its connection is cut, and says it again for as
// long as nobody answers, as a caller would.
func cutOff[T any](t *testing.T, s *postgres.Store, proxy *testenv.Proxy, round int, happened func(), do func(context.Context) (T, error)) (T, error) {
	t.Helper()
	warm(t, s)
	way := cuts[round%len(cuts)]
	proxy.Set(cutFrom[round%len(cuts)])
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		way.cut(proxy, happened)
	}()
	defer func() { <-cut }()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		answer, err := do(ctx)
		cancel()
		if !errors.Is(err, store.ErrAway) {
			return answer, err
		}
	}
}

// warm sees to it that there is a connection to be cut, on which the statements
// have been prepared.
func warm(t *testing.T, s *postgres.Store) {
	t.Helper()
	err := store.ErrAway
	for errors.Is(err, store.ErrAway) {
		err = errors.Join(claimAll(t.Context(), s, 1)...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAThousandCommitsWhoseAnswersAreLostAreLookedUp: whatever became of a commit,
// the caller learns in the end what the database knows.
func TestAThousandCommitsWhoseAnswersAreLostAreLookedUp(t *testing.T) {
	s, proxy, watch := proxied(t, "pool_max_conns=1")
	for round := range 500 {
		name := fmt.Sprint("cut-", round)
		rows := func(status string) int {
			return value[int](t, watch, `SELECT count(*) FROM quorate.history WHERE job = $1 AND status = $2`, name, status)
		}
		until := func(status string) func() {
			return func() {
				for deadline := time.Now().Add(10 * time.Second); rows(status) == 0 && time.Now().Before(deadline); {
				}
			}
		}
		c := claim(name)
		c.Token = name
		run, err := cutOff(t, s, proxy, round, until("running"), func(ctx context.Context) (jobs.Run, error) { return s.Claim(ctx, c) })
		if err != nil || rows("running") != 1 || run.ID != value[int64](t, watch, `SELECT run_id FROM quorate.history WHERE job = $1`, name) {
			t.Fatalf("round %d, claim cut %s: run %d, %v, of %d rows", round, cuts[round%len(cuts)].name, run.ID, err, rows("running"))
		}
		outcome := jobs.Outcome{Status: jobs.Failed, Reason: jobs.ReasonStep, Error: "x", Steps: []jobs.StepRun{{Name: "only", Kind: "sql", Status: jobs.Failed}}}
		done, err := cutOff(t, s, proxy, round+1, until("failed"), func(ctx context.Context) (jobs.Run, error) { return s.Finish(ctx, run, outcome) })
		steps := value[int](t, watch, `SELECT count(*) FROM quorate.steps WHERE run = $1`, run.ID)
		if err != nil || done.Status != jobs.Failed || rows("failed") != 1 || steps != 1 {
			t.Fatalf("round %d, finish cut %s: %s, %v, and %d steps", round, cuts[(round+1)%len(cuts)].name, done.Status, err, steps)
		}
	}
}
