package storetest

import (
	"fmt"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

var tokens = []promise{
	{"a claim that is repeated finds the run that it began", tokenFinds},
	{"a claim that many repeat at once begins one run", tokenTogether},
	{"a repeated claim has a new lease, though the old one had ended", tokenRenews},
	{"a claim with another token, or with none, finds nothing", tokenOther},
	{"a run that has ended is found by nobody", tokenEnded},
	{"a token is good for its own tick alone", tokenTick},
}

func with(token string, c store.Claim) store.Claim {
	c.Token = token
	return c
}

func tokenFinds(t *testing.T, s store.Store) {
	c := with("abc", want(tick("restock", 0)))
	run := granted(t, s, c)
	c.Evidence = jobs.Evidence{Votes: 3, Masters: 5, Granted: time.Second} // the lock was had a second time, too
	again := granted(t, s, c)
	if again.LeaseUntil.Before(run.LeaseUntil) {
		t.Errorf("the lease ended %s, and now ends %s", run.LeaseUntil, again.LeaseUntil)
	}
	expected := run
	expected.LeaseUntil, expected.Evidence = again.LeaseUntil, c.Evidence
	same(t, again, expected)
	same(t, fetched(t, s, run.ID), expected)
	if runs := listed(t, s, store.Filter{}); len(runs) != 1 {
		t.Fatalf("%d rows for one tick", len(runs))
	}
	finished(t, s, again, jobs.Outcome{Status: jobs.Succeeded})
}

func tokenTogether(t *testing.T, s store.Store) {
	runs, errs := together(func(int) (jobs.Run, error) { return s.Claim(t.Context(), with("abc", want(tick("restock", 0)))) })
	count(t, errs, nil)
	for _, run := range runs {
		if run.ID != runs[0].ID || run.Fence != runs[0].Fence || !run.Started.Equal(runs[0].Started) {
			t.Fatalf("one claim began the runs %+v and %+v", runs[0], run)
		}
	}
}

func tokenRenews(t *testing.T, s store.Store) {
	run := granted(t, s, with("abc", soon(tick("restock", 0))))
	eventually(t, "the lease has ended", func() bool {
		now, err := s.Now(t.Context())
		return err == nil && now.After(run.LeaseUntil)
	})
	again := granted(t, s, with("abc", want(tick("restock", 0))))
	if again.ID != run.ID {
		t.Fatalf("the claim began run %d, and now run %d", run.ID, again.ID)
	}
	if reaped, err := s.Reap(t.Context()); err != nil || len(reaped) != 0 {
		t.Errorf("reaped %v, %v", ids(reaped), err)
	}
}

func tokenOther(t *testing.T, s store.Store) {
	granted(t, s, with("abc", want(tick("restock", 0))))
	granted(t, s, want(tick("billing", 0)))
	for _, token := range []string{"", "abcd", "ABC", " abc"} {
		for _, job := range []string{"restock", "billing"} {
			_, err := s.Claim(t.Context(), with(token, want(tick(job, 0))))
			refused(t, err, store.ErrClaimed)
		}
	}
}

func tokenEnded(t *testing.T, s store.Store) {
	done := granted(t, s, with("abc", want(tick("done", 0))))
	finished(t, s, done, jobs.Outcome{Status: jobs.Succeeded})
	granted(t, s, with("abc", soon(tick("lost", 0))))
	eventually(t, "the run is reaped", func() bool {
		reaped, _ := s.Reap(t.Context())
		return len(reaped) == 1
	})
	for _, job := range []string{"done", "lost"} {
		_, err := s.Claim(t.Context(), with("abc", want(tick(job, 0))))
		refused(t, err, store.ErrClaimed)
	}
}

func tokenTick(t *testing.T, s store.Store) {
	granted(t, s, with("abc", want(tickUnder("inventory", "restock", 0))))
	for _, other := range []jobs.Tick{tickUnder("inventory", "restock", 1), tickUnder("inventory", "billing", 0)} {
		_, err := s.Claim(t.Context(), with("abc", want(other)))
		refused(t, err, store.ErrOverlap)
	}
	granted(t, s, with("abc", want(tickUnder("elsewhere", "restock", 1))))
}

var revisions = []promise{
	{"any revision may claim until one is activated", revisionAny},
	{"only the active revision may claim and register", revisionActive},
	{"runs of a revision that is no longer active go on", revisionRuns},
	{"once a revision was activated no other is granted, however many claim meanwhile", revisionTogether},
}

func of(revision string, c store.Claim) store.Claim {
	c.Revision = revision
	return c
}

func activated(t *testing.T, s store.Store, revision string) {
	t.Helper()
	if err := s.Activate(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	if active, err := s.Active(t.Context()); err != nil || active != revision {
		t.Fatalf("active is %q (%v), want %q", active, err, revision)
	}
}

func revisionAny(t *testing.T, s store.Store) {
	if active, err := s.Active(t.Context()); err != nil || active != "" {
		t.Errorf("active is %q (%v), want none", active, err)
	}
	granted(t, s, of("r1", want(tick("restock", 0))))
	granted(t, s, of("r2", want(tick("billing", 0))))
}

func revisionActive(t *testing.T, s store.Store) {
	since := registered(t, s, store.JobState{Name: "restock", Schedule: "every 1m"})
	activated(t, s, "r2")
	_, err := s.Claim(t.Context(), of("r1", want(tick("restock", 0))))
	refused(t, err, store.ErrRevision)
	_, err = s.Register(t.Context(), "r1", store.JobState{Name: "restock", Schedule: "every 5m"})
	refused(t, err, store.ErrRevision)
	states, err := s.Register(t.Context(), "r2", store.JobState{Name: "restock", Schedule: "every 1m"})
	if err != nil || len(states) != 1 || states[0] != since[0] {
		t.Errorf("the schedule that the other one wanted left %v (%v), want %v", states, err, since)
	}
	run := granted(t, s, of("r2", want(tick("restock", 0))))
	_, err = s.Claim(t.Context(), of("r1", want(tick("restock", 0))))
	refused(t, err, store.ErrClaimed) // the tick is in good hands
	finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
	activated(t, s, "r1")
	granted(t, s, of("r1", want(tick("restock", 1))))
}

func revisionRuns(t *testing.T, s store.Store) {
	c := of("r1", with("abc", want(tick("restock", 0))))
	run := granted(t, s, c)
	activated(t, s, "r2")
	if again := granted(t, s, c); again.ID != run.ID {
		t.Errorf("a claim that was granted is repeated as run %d, was %d", again.ID, run.ID)
	}
	if lost, err := s.Renew(t.Context(), "one", more(run, time.Hour)); err != nil || len(lost) != 0 {
		t.Errorf("lost %v, %v", lost, err)
	}
	finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
}

func revisionTogether(t *testing.T, s store.Store) {
	_, errs := together(func(i int) (jobs.Run, error) {
		if i == crowd/2 {
			return jobs.Run{}, s.Activate(t.Context(), "r2")
		}
		revision := fmt.Sprint("r", 1+i%2)
		return s.Claim(t.Context(), of(revision, want(tickUnder(fmt.Sprint("lock-", i), "restock", i))))
	})
	count(t, errs, nil, store.ErrRevision)
	_, err := s.Claim(t.Context(), of("r1", want(tick("restock", crowd))))
	refused(t, err, store.ErrRevision)
	for _, run := range listed(t, s, store.Filter{}) {
		if run.Revision == "r1" {
			finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
		}
	}
}
