package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/jobs"
	"quorate/jobs/steps"
	"quorate/redlock"
	"quorate/store"
	"quorate/store/postgres"
)

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
	locker, err := redlock.New(redlock.Options{RestartGuard: -1}, urls...)
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

func TestThreeReplicasRunEachTickOnce(t *testing.T) {
	c := newCluster(t)
	var mu sync.Mutex
	effects := map[time.Time]int{}
	tick := func(_ context.Context, run jobs.Run) error {
		mu.Lock()
		defer mu.Unlock()
		effects[run.Due]++
		return nil
	}
	var stops []func()
	for i := range 3 {
		j := job(t, "beat", func(j *jobs.Job) { j.Cron = jobs.Strings{"* * * * * *"} }, tick)
		s := c.replica(t, fmt.Sprintf("r%d", i), c.openStore(t, c.storeURL), j)
		stops = append(stops, start(t, s, time.Minute))
	}
	eventually(t, "six ticks have run", 20*time.Second, func() bool { return len(c.rows(t, "beat")) >= 6 })
	for _, stop := range stops {
		stop()
	}
	rows := c.rows(t, "beat")
	for i, r := range rows {
		if r.Status != jobs.Succeeded || effects[r.Due] != 1 {
			t.Errorf("%s ended %s(%s) with %d effects: %s", r.Due, r.Status, r.Reason, effects[r.Due], r.Error)
		}
		if i > 0 && r.Due.Sub(rows[i-1].Due) != time.Second {
			t.Errorf("%s follows %s: a tick has no row", r.Due, rows[i-1].Due)
		}
		if r.Evidence.Votes < 3 || r.Evidence.Left <= 0 {
			t.Errorf("evidence of %s: %+v", r.Due, r.Evidence)
		}
	}
	if len(effects) != len(rows) {
		t.Errorf("%d effects and %d rows", len(effects), len(rows))
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

func TestATickDuringARunIsSkippedAndItsRowSaysWhatWasInTheWay(t *testing.T) {
	c := newCluster(t)
	j, began, letGo := held(t, "long", nil)
	a, b := c.replica(t, "a", c.store, j), c.replica(t, "b", c.openStore(t, c.storeURL), j)
	first, err := a.RunNow(t.Context(), "long")
	if err != nil || first.Status != jobs.Running {
		t.Fatalf("first: %+v, %v", first, err)
	}
	<-began
	second, err := b.RunNow(t.Context(), "long")
	if err != nil || second.Status != jobs.Skipped || second.Reason != jobs.ReasonOverlap {
		t.Fatalf("second: %s(%s), %v", second.Status, second.Reason, err)
	}
	if !strings.Contains(second.Error, "by a") {
		t.Errorf("the row says %q, want the run in the way", second.Error)
	}
	letGo()
	eventually(t, "the first run ends", 5*time.Second, func() bool { r, _ := c.store.Run(t.Context(), first.ID); return r.Status == jobs.Succeeded })
	third, err := b.RunNow(t.Context(), "long")
	if err != nil || third.Status == jobs.Skipped || third.Fence <= first.Fence {
		t.Errorf("after the first: %+v, %v", third, err)
	}
	b.work.drain(time.Minute)
	a.work.drain(time.Minute)
}

func TestAQueuedTickWaitsForTheLock(t *testing.T) {
	c := newCluster(t)
	first, began, letGo := held(t, "first", func(j *jobs.Job) { j.Lock = "shared" })
	second := job(t, "second", func(j *jobs.Job) { j.Lock, j.Overlap = "shared", jobs.OverlapQueue }, nothing)
	s := c.replica(t, "a", c.store, first, second)
	if _, err := s.RunNow(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	<-began
	waiting := make(chan jobs.Run, 1)
	go func() {
		r, err := s.RunNow(context.Background(), "second")
		if err != nil {
			t.Error(err)
		}
		waiting <- r
	}()
	select {
	case r := <-waiting:
		t.Fatalf("did not wait: %+v", r)
	case <-time.After(200 * time.Millisecond):
	}
	letGo()
	if r := <-waiting; r.Status != jobs.Running && r.Status != jobs.Succeeded {
		t.Errorf("second ended %s(%s): %s", r.Status, r.Reason, r.Error)
	}
	s.work.drain(time.Minute)
}

func TestWithoutAQuorumNothingStartsAndTheTickIsMissed(t *testing.T) {
	c := newCluster(t)
	var ran atomic.Bool
	j := job(t, "x", func(j *jobs.Job) { j.StartDeadline = jobs.Duration(time.Second) }, func(context.Context, jobs.Run) error {
		ran.Store(true)
		return nil
	})
	s := c.replica(t, "a", c.store, j)
	for _, m := range c.masters[:3] {
		m.Kill()
	}
	r, err := s.RunNow(t.Context(), "x")
	if err != nil || r.Status != jobs.Missed || r.Reason != jobs.ReasonNoQuorum || ran.Load() {
		t.Fatalf("%s(%s), ran %v, %v", r.Status, r.Reason, ran.Load(), err)
	}
	if !strings.Contains(r.Error, "3 of 5 masters cannot vote") {
		t.Errorf("the row says %q", r.Error)
	}
}

func TestWithTwoMastersAwayEveryTickRuns(t *testing.T) {
	c := newCluster(t)
	s := c.replica(t, "a", c.store, job(t, "x", nil, nothing))
	c.masters[0].Kill()
	c.masters[1].Stop()
	for range 5 {
		r, err := s.RunNow(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the run succeeds", 5*time.Second, func() bool { r, _ = c.store.Run(t.Context(), r.ID); return r.Status.Final() })
		if r.Status != jobs.Succeeded {
			t.Errorf("%s(%s): %s", r.Status, r.Reason, r.Error)
		}
	}
}

func TestATickOlderThanItsStartDeadlineIsMissedAsLate(t *testing.T) {
	c := newCluster(t)
	j := job(t, "x", func(j *jobs.Job) { j.StartDeadline = jobs.Duration(10 * time.Second) }, nothing)
	s := c.replica(t, "a", c.store, j)
	tick := jobs.Tick{Job: j, Due: time.Now().Add(-11 * time.Second), Attempt: 1, Trigger: jobs.TriggerSchedule}
	r, err := s.settle(t.Context(), tick, nil)
	if err != nil || r.Status != jobs.Missed || r.Reason != jobs.ReasonLate {
		t.Errorf("%s(%s), %v", r.Status, r.Reason, err)
	}
}

func TestStoppingLetsRunsFinishAndReleasesTheirLocks(t *testing.T) {
	c := newCluster(t)
	j, began, letGo := held(t, "x", func(j *jobs.Job) { j.TTL = jobs.Duration(time.Minute) })
	s := c.replica(t, "a", c.store, j)
	stop := start(t, s, time.Minute)
	r, err := s.RunNow(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	<-began
	go func() {
		eventually(t, "the replica drains", 5*time.Second, func() bool {
			_, err := s.RunNow(context.Background(), "x")
			return errors.Is(err, errDraining)
		})
		letGo()
	}()
	stop()
	if r, _ = c.store.Run(t.Context(), r.ID); r.Status != jobs.Succeeded {
		t.Errorf("run ended %s(%s)", r.Status, r.Reason)
	}
	other := c.replica(t, "b", c.store, job(t, "x", nil, nothing))
	if r, err := other.RunNow(t.Context(), "x"); err != nil || r.Status == jobs.Skipped {
		t.Errorf("the next owner got %s(%s), %v", r.Status, r.Reason, err)
	}
	other.work.drain(time.Minute)
}

func TestStoppingCancelsWhatOutlivesTheDrain(t *testing.T) {
	c := newCluster(t)
	j, began, _ := held(t, "x", nil)
	s := c.replica(t, "a", c.store, j)
	stop := start(t, s, 50*time.Millisecond)
	r, err := s.RunNow(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	<-began
	stop()
	if r, _ = c.store.Run(t.Context(), r.ID); r.Status != jobs.Failed || r.Reason != jobs.ReasonShutdown {
		t.Errorf("run ended %s(%s): %s", r.Status, r.Reason, r.Error)
	}
}

func TestARunWhoseReplicaIsGoneIsClosedByAnother(t *testing.T) {
	c := newCluster(t)
	j := job(t, "x", nil, nothing)
	lost, err := c.store.Claim(t.Context(), store.Claim{
		Tick:    jobs.Tick{Job: j, Due: time.Now(), Attempt: 1, Trigger: jobs.TriggerSchedule},
		Replica: "gone", Revision: "r", Lease: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, c.replica(t, "a", c.store, j), time.Minute)
	eventually(t, "the lost run is closed", 5*time.Second, func() bool {
		r, _ := c.store.Run(t.Context(), lost.ID)
		return r.Status == jobs.Unknown && r.Reason == jobs.ReasonReplicaLost
	})
}

func TestARunLongerThanItsLeaseIsKeptAliveInTheStoreToo(t *testing.T) {
	c := newCluster(t)
	j, began, letGo := held(t, "x", func(j *jobs.Job) { j.TTL = jobs.Duration(200 * time.Millisecond) })
	s := c.replica(t, "a", c.store, j)
	start(t, s, time.Minute)
	r, err := s.RunNow(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	<-began
	first := r.LeaseUntil
	eventually(t, "the lease has moved on twice", 10*time.Second, func() bool {
		r, _ = c.store.Run(t.Context(), r.ID)
		return r.LeaseUntil.After(first.Add(storeLease(jobs.Tick{Job: j})))
	})
	letGo()
	eventually(t, "the run succeeds", 5*time.Second, func() bool { r, _ = c.store.Run(t.Context(), r.ID); return r.Status.Final() })
	if r.Status != jobs.Succeeded || r.Evidence.Extensions == 0 {
		t.Errorf("%s(%s) after %d extensions", r.Status, r.Reason, r.Evidence.Extensions)
	}
}

func TestARunEndsWhenItsLeaseCannotBeExtended(t *testing.T) {
	c := newCluster(t)
	j, began, _ := held(t, "x", func(j *jobs.Job) { j.TTL = jobs.Duration(500 * time.Millisecond) })
	s := c.replica(t, "a", c.store, j)
	r, err := s.RunNow(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	<-began
	for _, m := range c.masters[:3] {
		m.Stop()
	}
	eventually(t, "the run has ended", 10*time.Second, func() bool { r, _ = c.store.Run(t.Context(), r.ID); return r.Status.Final() })
	if r.Status != jobs.Failed || r.Reason != jobs.ReasonLeaseLost {
		t.Errorf("%s(%s): %s", r.Status, r.Reason, r.Error)
	}
}

func TestTicksThatNobodyRanAreFoundAndWrittenOnce(t *testing.T) {
	c := newCluster(t)
	j := job(t, "x", func(j *jobs.Job) {
		j.Every, j.StartDeadline = jobs.Durations{time.Second}, jobs.Duration(10*time.Second)
	}, nothing)
	a, b := c.replica(t, "a", c.store, j), c.replica(t, "b", c.openStore(t, c.storeURL), j)
	now := time.Now().Truncate(time.Second)
	since := now.Add(-time.Hour)
	there := jobs.Run{Job: "x", Due: now.Add(-30 * time.Minute), Attempt: 1, Trigger: jobs.TriggerSchedule, Status: jobs.Skipped, Reason: jobs.ReasonOverlap, Lock: "x"}
	if _, err := c.store.Record(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	for _, s := range []*Scheduler{a, b} {
		both.Go(func() {
			if err := s.accountFor(context.Background(), j, since, now); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	dues, err := c.store.Dues(t.Context(), "x", since, now)
	if err != nil {
		t.Fatal(err)
	}
	want := 3600 - 20 - 1 // the last 20 s may still be on their way; both ends are open
	if len(dues) != want {
		t.Errorf("%d rows, want %d", len(dues), want)
	}
	missed := c.rows(t, "x")
	for _, r := range missed {
		if r.Due.Equal(there.Due) != (r.Status == jobs.Skipped) {
			t.Fatalf("%s is %s(%s)", r.Due, r.Status, r.Reason)
		}
	}
}

func TestWhileTheStoreIsAwayNothingStartsAndTheTickIsRecordedLater(t *testing.T) {
	c := newCluster(t)
	u, err := url.Parse(c.storeURL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testenv.NewProxy(t, u.Host)
	u.Host = proxy.Addr()
	var ran atomic.Bool
	j := job(t, "x", func(j *jobs.Job) { j.StartDeadline = jobs.Duration(time.Second) }, func(context.Context, jobs.Run) error {
		ran.Store(true)
		return nil
	})
	s := c.replica(t, "a", c.openStore(t, u.String()), j)
	proxy.Set(testenv.Refuse)
	if r, err := s.RunNow(t.Context(), "x"); !errors.Is(err, store.ErrAway) {
		t.Fatalf("%+v, %v", r, err)
	}
	proxy.Set(testenv.Pass)
	s.payOwed(t.Context())
	rows := c.rows(t, "x")
	if len(rows) != 1 || rows[0].Status != jobs.Missed || rows[0].Reason != jobs.ReasonNoStore || ran.Load() {
		t.Errorf("ran %v, rows %+v", ran.Load(), rows)
	}
}

func TestAnUnknownJobIsNamedWithThoseThatThereAre(t *testing.T) {
	c := newCluster(t)
	s := c.replica(t, "a", c.store, job(t, "x", nil, nothing), job(t, "y", nil, nothing))
	if _, err := s.RunNow(t.Context(), "z"); !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), "x, y") {
		t.Error(err)
	}
}
