package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

var finishes = []promise{
	{"finish writes how the run ended, and its steps", finishWrites},
	{"the evidence of the grant stays as it was", finishEvidence},
	{"a finish whose answer was lost is repeated with success", finishRepeated},
	{"a finished run can not be finished otherwise", finishOtherwise},
	{"of many different ends at once one is written", finishRace},
	{"the same end from many at once succeeds for all, written once", finishTogether},
	{"a finish under another fence is refused", finishFence},
	{"a run that nobody knows is not found", finishUnknown},
	{"a run that was reaped is fenced off", finishReaped},
	{"a run whose lock was granted again is fenced off", finishFenced},
	{"a lease that ended takes nothing from a run that nobody closed", finishLate},
	{"steps keep their texts, whatever was printed", finishTexts},
	{"an output that is too long is cut, between two runes", finishCut},
	{"a run of many steps keeps them all, in order", finishMany},
	{"a run ends succeeded, failed or unknown", finishNonsense},
}

func twoSteps() []jobs.StepRun {
	return []jobs.StepRun{
		{Index: 0, Name: "count", Kind: "sql", Status: jobs.Succeeded, Started: epoch, Finished: epoch.Add(7 * time.Microsecond), Rows: 42, Output: "ok"},
		{Index: 1, Name: "tell", Kind: "http", Status: jobs.Failed, Started: epoch.Add(time.Second), Finished: epoch.Add(2 * time.Second), Error: "status 500"},
	}
}

func finishWrites(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	evidence := run.Evidence
	evidence.Lowest, evidence.Left, evidence.Extensions = 1234*time.Millisecond, 2345*time.Millisecond, 3
	done := finished(t, s, run, jobs.Outcome{
		Status: jobs.Failed, Reason: jobs.ReasonStep, Error: "step \"tell\": status 500", Steps: twoSteps(), Evidence: evidence})

	now, _ := s.Now(t.Context())
	if done.Finished.Before(run.Started) || done.Finished.After(now) || done.Finished.Location() != time.UTC {
		t.Errorf("finished %s, want a time of the store's clock in UTC", done.Finished)
	}
	expected := run
	expected.Status, expected.Reason, expected.Error = jobs.Failed, jobs.ReasonStep, "step \"tell\": status 500"
	expected.Finished, expected.Evidence = done.Finished, evidence
	same(t, done, expected)
	got := fetched(t, s, run.ID)
	same(t, got, expected)
	for _, steps := range [][]jobs.StepRun{done.Steps, got.Steps} {
		if g, w := fmt.Sprintf("%+v", steps), fmt.Sprintf("%+v", twoSteps()); g != w {
			t.Errorf("got the steps\n%s\nwant\n%s", g, w)
		}
	}
}

func finishEvidence(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	done := finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded, Evidence: jobs.Evidence{Lowest: time.Second}})
	expected := run.Evidence
	expected.Lowest = time.Second
	if done.Evidence != expected {
		t.Errorf("got the evidence %+v, want %+v", done.Evidence, expected)
	}
}

func finishRepeated(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	o := jobs.Outcome{Status: jobs.Failed, Reason: jobs.ReasonStep, Error: "what a\x00pity", Steps: twoSteps()}
	first := finished(t, s, run, o)
	granted(t, s, want(tick("restock", 1))) // even where the lock has moved on
	second := finished(t, s, run, o)
	same(t, second, first)
	if got := fetched(t, s, run.ID); len(got.Steps) != 2 {
		t.Errorf("%d steps after a repeated finish, want 2", len(got.Steps))
	}
}

func finishOtherwise(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	first := finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
	for _, other := range []jobs.Outcome{
		{Status: jobs.Failed, Reason: jobs.ReasonStep},
		{Status: jobs.Succeeded, Reason: jobs.ReasonTimeout},
		{Status: jobs.Succeeded, Error: "on second thoughts"},
	} {
		_, err := s.Finish(t.Context(), run, other)
		refused(t, err, store.ErrFenced)
	}
	same(t, fetched(t, s, run.ID), first)
}

func finishRace(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	_, errs := together(func(i int) (jobs.Run, error) {
		return s.Finish(t.Context(), run, jobs.Outcome{Status: jobs.Failed, Error: fmt.Sprint("end ", i), Steps: twoSteps()})
	})
	if n := count(t, errs, nil, store.ErrFenced); n[nil] != 1 {
		t.Fatalf("%d of %d different ends were accepted, want 1", n[nil], crowd)
	}
	got := fetched(t, s, run.ID)
	for i, err := range errs {
		if err == nil && got.Error != fmt.Sprint("end ", i) {
			t.Errorf("end %d was accepted, and %q is kept", i, got.Error)
		}
	}
}

func finishTogether(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	_, errs := together(func(int) (jobs.Run, error) {
		return s.Finish(t.Context(), run, jobs.Outcome{Status: jobs.Succeeded, Steps: twoSteps()})
	})
	count(t, errs, nil)
	if got := fetched(t, s, run.ID); len(got.Steps) != 2 {
		t.Errorf("%d steps, want 2", len(got.Steps))
	}
}

func finishFence(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	for _, fence := range []jobs.Fence{run.Fence - 1, run.Fence + 1, 0} {
		stale := run
		stale.Fence = fence
		_, err := s.Finish(t.Context(), stale, jobs.Outcome{Status: jobs.Succeeded})
		refused(t, err, store.ErrFenced)
	}
	same(t, fetched(t, s, run.ID), run)

	// Nor does the right outcome under a wrong fence count as a repetition.
	finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
	stale := run
	stale.Fence++
	_, err := s.Finish(t.Context(), stale, jobs.Outcome{Status: jobs.Succeeded})
	refused(t, err, store.ErrFenced)
}

func finishUnknown(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	run.ID += 1000
	_, err := s.Finish(t.Context(), run, jobs.Outcome{Status: jobs.Succeeded})
	refused(t, err, store.ErrNotFound)
}

func finishReaped(t *testing.T, s store.Store) {
	run := granted(t, s, soon(tick("restock", 0)))
	var reaped []jobs.Run
	eventually(t, "the run is reaped", func() bool {
		reaped, _ = s.Reap(t.Context())
		return len(reaped) == 1
	})
	_, err := s.Finish(t.Context(), run, jobs.Outcome{Status: jobs.Succeeded, Steps: twoSteps()})
	refused(t, err, store.ErrFenced)
	says(t, err, "replica_lost")
	got := fetched(t, s, run.ID)
	same(t, got, reaped[0])
	if len(got.Steps) != 0 {
		t.Errorf("steps were written for a run that is fenced off: %+v", got.Steps)
	}
}

func finishFenced(t *testing.T, s store.Store) {
	first := granted(t, s, soon(tick("restock", 0)))
	second := granted(t, s, want(tick("restock", 1)))
	_, err := s.Finish(t.Context(), first, jobs.Outcome{Status: jobs.Succeeded})
	refused(t, err, store.ErrFenced)
	finished(t, s, second, jobs.Outcome{Status: jobs.Succeeded})
}

func finishLate(t *testing.T, s store.Store) {
	run := granted(t, s, soon(tick("restock", 0)))
	eventually(t, "the lease has ended", func() bool {
		now, err := s.Now(t.Context())
		return err == nil && now.After(run.LeaseUntil)
	})
	finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded})
	if reaped, err := s.Reap(t.Context()); err != nil || len(reaped) != 0 {
		t.Errorf("reaped %v after the run had finished (%v)", ids(reaped), err)
	}
}

func finishTexts(t *testing.T, s store.Store) {
	texts := map[string]string{
		"":                       "",
		"grüße, 世界 🚀 e\u0301":    "grüße, 世界 🚀 e\u0301",
		"'; DROP TABLE runs; --": "'; DROP TABLE runs; --",
		`{"a": "\u0000", '$1'}`:  `{"a": "\u0000", '$1'}`,
		"a\x00b":                 "a\uFFFDb",
		"bad \xff\xfe bytes":     "bad \uFFFD bytes",
		"half a rune \xe4\xb8":   "half a rune \uFFFD",
		"tabs\tand\r\nlines\x1b": "tabs\tand\r\nlines\x1b",
	}
	n := 0
	for in, out := range texts {
		run := granted(t, s, want(tick("restock", n)))
		n++
		finished(t, s, run, jobs.Outcome{Status: jobs.Failed, Error: in, Steps: []jobs.StepRun{
			{Name: in, Kind: "command", Status: jobs.Failed, Output: in, Error: in}}})
		got := fetched(t, s, run.ID)
		step := got.Steps[0]
		for _, text := range []string{got.Error, step.Name, step.Output, step.Error} {
			if text != out {
				t.Errorf("%q came back as %q, want %q", in, text, out)
			}
		}
	}
}

func finishCut(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	long := "x" + strings.Repeat("世", store.MaxText) // a rune lies across the limit
	finished(t, s, run, jobs.Outcome{Status: jobs.Failed, Error: long, Steps: []jobs.StepRun{
		{Index: 0, Name: "long", Kind: "command", Status: jobs.Failed, Output: long, Error: long},
		{Index: 1, Name: "bytes", Kind: "command", Status: jobs.Failed, Output: strings.Repeat("\xff\x00", store.MaxText)},
	}})
	got := fetched(t, s, run.ID)
	for _, text := range []string{got.Error, got.Steps[0].Output, got.Steps[0].Error, got.Steps[1].Output} {
		if len(text) > store.MaxText || len(text) < store.MaxText-4 {
			t.Errorf("%d bytes are kept, want the most that fit into %d", len(text), store.MaxText)
		}
	}
	if !strings.HasPrefix(long, got.Steps[0].Output) {
		t.Error("what is kept is not how the output began")
	}
}

func finishMany(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	var steps []jobs.StepRun
	for i := range 300 {
		steps = append(steps, jobs.StepRun{Index: i, Name: fmt.Sprint("step ", i), Kind: "command", Status: jobs.Succeeded,
			Rows: int64(i), Output: strings.Repeat("line\n", i)})
	}
	finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded, Steps: steps})
	got := fetched(t, s, run.ID)
	if g, w := fmt.Sprintf("%+v", got.Steps), fmt.Sprintf("%+v", steps); g != w {
		t.Errorf("300 steps came back differently: %d of them, %d bytes instead of %d", len(got.Steps), len(g), len(w))
	}
	if listed := listed(t, s, store.Filter{}); listed[0].Steps != nil {
		t.Error("a list brings the steps along")
	}
}

func finishNonsense(t *testing.T, s store.Store) {
	run := granted(t, s, want(tick("restock", 0)))
	for _, status := range []jobs.Status{jobs.Running, jobs.Skipped, jobs.Missed, "", "great"} {
		if _, err := s.Finish(t.Context(), run, jobs.Outcome{Status: status}); err == nil {
			t.Errorf("a run was finished as %q", status)
		}
	}
	same(t, fetched(t, s, run.ID), run)
}
