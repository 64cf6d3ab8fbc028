package scheduler

import (
	"context"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/jobs"
	"quorate/store/journal"
)

// apart is a cluster whose replicas reach the store through a proxy, and the test
// without.
func apart(t *testing.T) (*cluster, *testenv.Proxy) {
	t.Helper()
	c := newCluster(t)
	at, err := url.Parse(c.storeURL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testenv.NewProxy(t, at.Host)
	at.Host = proxy.Addr()
	c.storeURL = at.String()
	return c, proxy
}

func (c *cluster) withJournal(t *testing.T, name, path string, all ...*jobs.Job) *Scheduler {
	t.Helper()
	s := c.replica(t, name, c.openStore(t, c.storeURL), all...)
	j, _, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	s.journal = j
	return s
}

// endsWithoutStore runs a job of the replica that ends when the store is away.
func endsWithoutStore(t *testing.T, s *Scheduler, proxy *testenv.Proxy, job string, began <-chan jobs.Run, letGo func()) jobs.Run {
	t.Helper()
	run, err := s.RunNow(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	proxy.Set(testenv.Refuse)
	letGo()
	eventually(t, "the end of the run is in the journal", 20*time.Second, func() bool { return !s.journal.Empty() })
	return run
}

func TestHowARunEndedWhileTheStoreWasAwayIsToldWhenItIsBack(t *testing.T) {
	c, proxy := apart(t)
	j, began, letGo := held(t, "x", nil)
	s := c.withJournal(t, "a", filepath.Join(t.TempDir(), "journal"), j)
	start(t, s, time.Minute)
	run := endsWithoutStore(t, s, proxy, "x", began, letGo)
	proxy.Set(testenv.Pass)
	eventually(t, "the run has ended", 20*time.Second, func() bool { run, _ = c.store.Run(t.Context(), run.ID); return run.Status.Final() })
	if run.Status != jobs.Succeeded || len(run.Steps) != 1 || !s.journal.Empty() {
		t.Errorf("the run ended %s(%s) with %d steps", run.Status, run.Reason, len(run.Steps))
	}
}

func TestAReplicaThatDiedTellsAfterItsRestartHowItsRunsEnded(t *testing.T) {
	c, proxy := apart(t)
	path := filepath.Join(t.TempDir(), "journal")
	j, began, letGo := held(t, "x", nil)
	died := c.withJournal(t, "a", path, j)
	run := endsWithoutStore(t, died, proxy, "x", began, letGo)
	died.journal.Close() // it never got further
	proxy.Set(testenv.Pass)
	start(t, c.withJournal(t, "a", path, j), time.Minute)
	eventually(t, "the run has ended", 20*time.Second, func() bool { run, _ = c.store.Run(t.Context(), run.ID); return run.Status.Final() })
	if run.Status != jobs.Succeeded {
		t.Errorf("the run ended %s(%s)", run.Status, run.Reason)
	}
}

// The lease of a run ends while nobody reaches the store. Whoever is back first
// does not close it before its own replica can tell how it ended.
func TestNobodyGivesUpARunWhoseReplicaCouldNotReachTheStoreEither(t *testing.T) {
	c, proxy := apart(t)
	j, began, letGo := held(t, "x", func(j *jobs.Job) { j.TTL = jobs.Duration(500 * time.Millisecond) })
	s := c.withJournal(t, "a", filepath.Join(t.TempDir(), "journal"), j)
	other := c.replica(t, "b", c.openStore(t, c.storeURL), j)
	run := endsWithoutStore(t, s, proxy, "x", began, letGo)
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	other.reap(within)
	eventually(t, "the lease has ended", 20*time.Second, func() bool {
		now, err := c.store.Now(t.Context())
		return err == nil && now.After(run.LeaseUntil)
	})
	proxy.Set(testenv.Pass)
	other.reap(within)
	s.replay(within)
	if run, _ = c.store.Run(t.Context(), run.ID); run.Status != jobs.Succeeded {
		t.Errorf("the run ended %s(%s)", run.Status, run.Reason)
	}
}
