package scheduler

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/jobs"
	"quorate/jobs/steps"
	"quorate/redlock"
	"quorate/store"
	"quorate/store/postgres"
)

// masterTimeout is long, because the machine may be slow and none of the tests here
// is about it.
const masterTimeout = 500 * time.Millisecond

// A cluster is real masters and a real store, and replicas over them in this
// process, each with connections of its own.
type cluster struct {
	masters  []*testenv.Redis
	storeURL string
	store    store.Store
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{masters: testenv.Masters(t, 5), storeURL: testenv.Postgres(t)}
	c.store = c.openStore(t, c.storeURL)
	if err := c.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) openStore(t *testing.T, at string) store.Store {
	t.Helper()
	st, err := postgres.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return st
}

// replica returns a replica that does not tick yet.
func (c *cluster) replica(t *testing.T, name string, st store.Store, all ...*jobs.Job) *Scheduler {
	t.Helper()
	urls := make([]string, len(c.masters))
	for i, m := range c.masters {
		urls[i] = m.URL()
	}
	locker, err := redlock.New(redlock.Options{RestartGuard: -1, MasterTimeout: masterTimeout}, urls...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	s, err := New(Config{Replica: name, Jobs: all, Locker: locker, Store: st, Steps: &steps.Executor{}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start makes the replica tick until stop is called, which waits for its end.
func start(t *testing.T, s *Scheduler, drain time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, drain) }()
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatalf("replica did not start: %v", err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("replica: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func job(t *testing.T, name string, change func(*jobs.Job), do jobs.Func) *jobs.Job {
	t.Helper()
	j := &jobs.Job{Name: name, Steps: []jobs.Step{{Name: "do", Func: do}}}
	if change != nil {
		change(j)
	}
	if bad := j.Prepare(); len(bad) > 0 {
		t.Fatal(bad)
	}
	return j
}

func nothing(context.Context, jobs.Run) error { return nil }

// rows returns all rows of a job, oldest due first.
func (c *cluster) rows(t *testing.T, name string) []jobs.Run {
	t.Helper()
	rows, err := c.store.Runs(t.Context(), store.Filter{Job: name, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(rows, func(a, b jobs.Run) int { return a.Due.Compare(b.Due) })
	return rows
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, within time.Duration, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// held is a job whose run goes on until it is let go.
func held(t *testing.T, name string, change func(*jobs.Job)) (j *jobs.Job, began <-chan jobs.Run, letGo func()) {
	runs, gate := make(chan jobs.Run, 16), make(chan struct{})
	j = job(t, name, change, func(ctx context.Context, run jobs.Run) error {
		runs <- run
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	letGo = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(letGo)
	return j, runs, letGo
}
