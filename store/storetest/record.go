package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

var records = []promise{
	{"a tick that never ran gets its row, with its reason", recordWrites},
	{"a tick that has a row keeps it", recordKeeps},
	{"a recorded tick is claimed", recordClaims},
	{"of many who record the same ticks, each row is written by one", recordOnce},
	{"a record of nothing is nothing", recordNothing},
	{"thousands of ticks are recorded at once", recordMany},
	{"a tick that ran is not recorded", recordNonsense},
}

// ended is the nth tick of a job as one that never ran.
func ended(job string, n int, status jobs.Status, reason jobs.Reason) jobs.Run {
	t := tick(job, n)
	return jobs.Run{Job: job, Due: t.Due, Attempt: 1, Trigger: t.Trigger, Status: status, Reason: reason,
		Lock: t.Lock(), Replica: "one", Revision: "r1"}
}

func recorded(t *testing.T, s store.Store, runs ...jobs.Run) []jobs.Run {
	t.Helper()
	written, err := s.Record(t.Context(), runs...)
	if err != nil {
		t.Fatalf("record: %v", err)
	}
	return written
}

func recordWrites(t *testing.T, s store.Store) {
	missed := ended("restock", 0, jobs.Missed, jobs.ReasonNoQuorum)
	missed.Error = "2 of 5 masters answered\x00: 世界"
	skipped := ended("restock", 1, jobs.Skipped, jobs.ReasonOverlap)
	written := recorded(t, s, missed, skipped)
	if len(written) != 2 {
		t.Fatalf("%d rows were written, want 2", len(written))
	}
	missed.Error = "2 of 5 masters answered\uFFFD: 世界"
	now, _ := s.Now(t.Context())
	for i, expected := range []jobs.Run{missed, skipped} {
		got := written[i]
		if got.ID == 0 || got.Finished.IsZero() || got.Finished.After(now) || !got.Started.IsZero() {
			t.Errorf("recorded as %+v: want an id, a time of recording, and no start", got)
		}
		expected.ID, expected.Finished = got.ID, got.Finished
		same(t, got, expected)
		same(t, fetched(t, s, got.ID), expected)
	}
}

func recordKeeps(t *testing.T, s store.Store) {
	running := granted(t, s, want(tick("restock", 0)))
	first := recorded(t, s, ended("restock", 1, jobs.Missed, jobs.ReasonNoReplica))[0]

	written := recorded(t, s,
		ended("restock", 0, jobs.Missed, jobs.ReasonLate),
		ended("restock", 1, jobs.Skipped, jobs.ReasonOverlap),
		ended("restock", 2, jobs.Missed, jobs.ReasonLate),
		ended("restock", 2, jobs.Missed, jobs.ReasonNoQuorum))
	if len(written) != 1 || written[0].Reason != jobs.ReasonLate || !written[0].Due.Equal(tick("restock", 2).Due) {
		t.Fatalf("written: %+v, want the one tick that had no row", written)
	}
	same(t, fetched(t, s, running.ID), running)
	same(t, fetched(t, s, first.ID), first)
	finished(t, s, running, jobs.Outcome{Status: jobs.Succeeded})
}

func recordClaims(t *testing.T, s store.Store) {
	recorded(t, s, ended("restock", 0, jobs.Missed, jobs.ReasonNoReplica))
	_, err := s.Claim(t.Context(), want(tick("restock", 0)))
	refused(t, err, store.ErrClaimed)
	granted(t, s, want(tick("restock", 1))) // and it holds no lock
}

func recordOnce(t *testing.T, s store.Store) {
	const ticks = 100
	written, errs := together(func(i int) ([]jobs.Run, error) {
		runs := make([]jobs.Run, ticks)
		for n := range runs {
			runs[n] = ended("restock", n, jobs.Missed, jobs.ReasonNoReplica)
		}
		if i%2 == 1 { // two who go towards each other must not wait for each other
			slices.Reverse(runs)
		}
		return s.Record(t.Context(), runs...)
	})
	count(t, errs, nil)
	seen := map[int64]bool{}
	for _, runs := range written {
		for _, run := range runs {
			if seen[run.ID] {
				t.Errorf("row %d was written twice", run.ID)
			}
			seen[run.ID] = true
		}
	}
	if rows := listed(t, s, store.Filter{Limit: 1000}); len(rows) != ticks || len(seen) != ticks {
		t.Errorf("%d rows for %d ticks, %d of them returned", len(rows), ticks, len(seen))
	}
}

func recordNothing(t *testing.T, s store.Store) {
	if written := recorded(t, s); len(written) != 0 {
		t.Errorf("%d rows were written", len(written))
	}
}

func recordMany(t *testing.T, s store.Store) {
	runs := make([]jobs.Run, 5000)
	for i := range runs {
		runs[i] = ended(fmt.Sprint("job-", i%10), i, jobs.Missed, jobs.ReasonNoReplica)
	}
	if written := recorded(t, s, runs...); len(written) != len(runs) {
		t.Errorf("%d rows were written, want %d", len(written), len(runs))
	}
}

func recordNonsense(t *testing.T, s store.Store) {
	for name, spoil := range map[string]func(r *jobs.Run){
		"no job":     func(r *jobs.Run) { r.Job = "" },
		"no due":     func(r *jobs.Run) { r.Due = time.Time{} },
		"no attempt": func(r *jobs.Run) { r.Attempt = 0 },
		"no trigger": func(r *jobs.Run) { r.Trigger = "" },
		"running":    func(r *jobs.Run) { r.Status = jobs.Running },
		"succeeded":  func(r *jobs.Run) { r.Status = jobs.Succeeded },
	} {
		r := ended("restock", 0, jobs.Missed, jobs.ReasonLate)
		spoil(&r)
		if _, err := s.Record(t.Context(), ended("restock", 1, jobs.Missed, jobs.ReasonLate), r); err == nil {
			t.Errorf("%s: was recorded", name)
		}
	}
	if runs := listed(t, s, store.Filter{}); len(runs) != 0 {
		t.Errorf("%d rows were written along with the refusals", len(runs))
	}
}
