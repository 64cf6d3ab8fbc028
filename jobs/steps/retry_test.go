package steps_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
)

// tries counts what became of a step with three tries, from what it says itself.
func tries(t *testing.T, got jobs.Outcome) int {
	t.Helper()
	return 1 + strings.Count(got.Steps[0].Output, "failed: ")
}

func TestStepIsTriedAgainOnlyWhereThatCanDoNoHarm(t *testing.T) {
	t.Parallel()
	db := newTarget(t, "postgres")
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	defer refusing.Close()
	cutting, acted := sink(t, "")
	fenced := holdOf(1, 3, sqlStep(insert))
	newer := holdOf(2, 9, sqlStep("SELECT 1"))
	newer.Run.Due = due.Add(time.Minute)
	want(t, db.run(t, newer), jobs.Succeeded, "")
	exit := func(code int) jobs.Step {
		step := shell(fmt.Sprint("exit ", code))
		step.Exit = jobs.Exit{Retry: []int{75}}
		return step
	}
	no := false
	loose := sqlStep("INSERT INTO nosuch VALUES (1)")
	loose.Transactional = &no
	broken := funcStep(func(context.Context, jobs.Run) error { return errors.New("broken") })
	for name, c := range map[string]struct {
		step            jobs.Step
		plain, harmless int // tries, and tries of one that says that it is idempotent
		status, harmed  jobs.Status
		fence           jobs.Fence
	}{
		"sql that fails":           {sqlStep("INSERT INTO nosuch VALUES (1)"), 3, 3, jobs.Failed, jobs.Failed, 20},
		"sql that is fenced":       {fenced.Job.Steps[0], 1, 1, jobs.Failed, jobs.Failed, 3},
		"sql without transaction":  {loose, 1, 3, jobs.Failed, jobs.Failed, 20},
		"request not sent":         {httpStep("http://127.0.0.1:1/"), 3, 3, jobs.Failed, jobs.Failed, 20},
		"request refused":          {httpStep(refusing.URL), 1, 3, jobs.Failed, jobs.Failed, 20},
		"request without answer":   {httpStep(cutting), 1, 3, jobs.Unknown, jobs.Unknown, 20},
		"command not there":        {jobs.Step{Command: []string{"/no/such/program"}}, 3, 3, jobs.Failed, jobs.Failed, 20},
		"command that fails":       {exit(1), 1, 3, jobs.Failed, jobs.Failed, 20},
		"command that asks for it": {exit(75), 3, 3, jobs.Failed, jobs.Failed, 20},
		"function that fails":      {broken, 1, 3, jobs.Failed, jobs.Failed, 20},
	} {
		for _, idempotent := range []bool{false, true} {
			c.step.Retries, c.step.Backoff, c.step.Idempotent = 2, jobs.Duration(time.Millisecond), idempotent
			n, status := c.plain, c.status
			if idempotent {
				n, status = c.harmless, c.harmed
			}
			got := db.run(t, holdOf(1, c.fence, c.step))
			if got.Status != status || tries(t, got) != n {
				t.Errorf("%s, idempotent %v: %d tries, %s(%s), want %d, %s: %s", name, idempotent, tries(t, got), got.Status, got.Reason, n, status, got.Error)
			}
		}
	}
	if n := acted.Load(); n != 1+3 {
		t.Errorf("the sink acted %d times", n)
	}
}

func TestTryThatSucceedsEndsTheStepAndTheOthersAreShown(t *testing.T) {
	t.Parallel()
	count := filepath.Join(t.TempDir(), "count")
	step := shell(`echo x >> ` + count + `; echo run $(wc -l < ` + count + `); test $(wc -l < ` + count + `) = 3 || exit 75`)
	step.Exit, step.Retries, step.Backoff = jobs.Exit{Retry: []int{75}}, 5, jobs.Duration(time.Millisecond)
	got := execute(t, holdOf(1, 7, step))
	want(t, got, jobs.Succeeded, "")
	out := got.Steps[0].Output
	if tries(t, got) != 3 || !strings.HasSuffix(out, "run 3\n") || !strings.HasPrefix(out, "run 1\n[try 1 of 6 failed: exited with status 75") {
		t.Errorf("output %q", out)
	}
}

func TestPausesBetweenTriesGrowAndDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		step := funcStep(func(context.Context, jobs.Run) error { at = append(at, time.Now()); return errors.New("no") })
		step.Idempotent, step.Retries, step.Backoff = true, 12, jobs.Duration(time.Second)
		h := holdOf(1, 7, step)
		h.Job.Timeout = jobs.Duration(10 * time.Hour)
		want(t, execute(t, h), jobs.Failed, jobs.ReasonStep, "no")
		if len(at) != 13 {
			t.Fatalf("%d tries", len(at))
		}
		whole := 0
		for i, most := 1, time.Second; i < len(at); i, most = i+1, min(2*most, 5*time.Minute) {
			pause := at[i].Sub(at[i-1])
			if pause < most/2 || pause > most {
				t.Errorf("pause %d: %s, want %s to %s", i, pause, most/2, most)
			}
			if pause%(most/2) == 0 {
				whole++
			}
		}
		if whole > 2 {
			t.Error("the pauses have no jitter")
		}
	})
}

func TestNoTryBeginsWithoutALeaseOrTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		fail := funcStep(func(context.Context, jobs.Run) error { runs++; return errors.New("no") })
		fail.Idempotent, fail.Retries, fail.Backoff = true, 10, jobs.Duration(time.Minute)
		h := holdOf(1, 7, fail)
		h.Job.Timeout = jobs.Duration(time.Hour)
		end := time.Now().Add(2 * time.Second)
		h.Validity = func() time.Duration { return time.Until(end) }
		want(t, execute(t, h), jobs.Failed, jobs.ReasonLeaseLost, "no", "no time for another try")
		h = holdOf(1, 7, fail)
		h.Job.Timeout = jobs.Duration(time.Second)
		want(t, execute(t, h), jobs.Failed, jobs.ReasonTimeout, "no", "no time for another try")
		if runs != 2 {
			t.Errorf("%d tries", runs)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(steps.ErrShutdown) })
		begun := time.Now()
		var exec steps.Executor
		want(t, exec.Execute(ctx, holdOf(1, 7, fail)), jobs.Failed, jobs.ReasonShutdown)
		if time.Since(begun) != time.Second {
			t.Errorf("the pause held for %s", time.Since(begun))
		}
	})
}

func TestTryOfWhichNobodyKnowsIsNotForgottenOverALaterOne(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if seen.Add(1) == 1 {
			panic(http.ErrAbortHandler) // acted, and gave no answer
		}
		w.WriteHeader(500)
	}))
	server.Start()
	defer server.Close()
	step := httpStep(server.URL)
	step.Idempotent, step.Retries = true, 1
	want(t, execute(t, holdOf(1, 7, step)), jobs.Unknown, jobs.ReasonOutcome, "500")
	if seen.Load() != 2 {
		t.Errorf("%d requests", seen.Load())
	}
}

func TestTimeoutIsThatOfEachTry(t *testing.T) {
	t.Parallel()
	gone := filepath.Join(t.TempDir(), "gone")
	step := shell("test -e " + gone + " && exit 0; touch " + gone + "; exec sleep 60")
	step.Idempotent, step.Retries, step.Timeout = true, 1, jobs.Duration(300*time.Millisecond)
	want(t, execute(t, holdOf(1, 7, step)), jobs.Succeeded, "")
}

func TestStepOnFailureRunsThenAndOnlyThen(t *testing.T) {
	t.Parallel()
	var did []string
	do := func(name string, err error) jobs.Step {
		step := funcStep(func(context.Context, jobs.Run) error { did = append(did, name); return err })
		step.Name = name
		return step
	}
	work, tell := do("work", nil), do("tell", nil)
	work.OnFailure = "tell"
	want(t, execute(t, holdOf(1, 7, work, tell, do("more", nil))), jobs.Succeeded, "")
	broken, late := do("broken", errors.New("broken")), do("late", nil)
	broken.OnFailure = "tell"
	got := execute(t, holdOf(1, 7, broken, tell, late))
	want(t, got, jobs.Failed, jobs.ReasonStep, `step "broken": broken`)
	if len(got.Steps) != 2 || got.Steps[1].Name != "tell" || got.Steps[1].Index != 1 || got.Steps[1].Status != jobs.Succeeded {
		t.Errorf("steps %+v", got.Steps)
	}
	untold := do("tell", errors.New("nobody there"))
	got = execute(t, holdOf(1, 7, broken, untold))
	want(t, got, jobs.Failed, jobs.ReasonStep, `step "broken": broken; on_failure "tell": nobody there`)
	if all := strings.Join(did, " "); all != "work more broken tell broken tell" {
		t.Errorf("did %s", all)
	}
}

func TestStepOnFailureDoesNotRunWhereNobodyKnowsOrTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	tell := funcStep(func(context.Context, jobs.Run) error { t.Error("was run"); return nil })
	tell.Name = "tell"
	url, _ := sink(t, "")
	lost := httpStep(url)
	lost.OnFailure = "tell"
	want(t, execute(t, holdOf(1, 7, lost, tell)), jobs.Unknown, jobs.ReasonOutcome)

	left := time.Minute
	broken := funcStep(func(context.Context, jobs.Run) error { left = 0; return errors.New("broken") })
	broken.OnFailure = "tell"
	h := holdOf(1, 7, broken, tell)
	h.Validity = func() time.Duration { return left }
	want(t, execute(t, h), jobs.Failed, jobs.ReasonStep, "broken", `on_failure "tell" was not begun`)
}

func TestStepOnFailureOfWhichNobodyKnowsMakesTheRunUnknown(t *testing.T) {
	t.Parallel()
	url, _ := sink(t, "")
	tell := httpStep(url)
	tell.Name = "tell"
	broken := shell("exit 1")
	broken.OnFailure = "tell"
	want(t, execute(t, holdOf(1, 7, broken, tell)), jobs.Unknown, jobs.ReasonOutcome, "exited with status 1", "no answer came")
}

func TestExitCodesMeanWhatTheStepSays(t *testing.T) {
	t.Parallel()
	after := filepath.Join(t.TempDir(), "after")
	exit := func(code int, meaning jobs.Exit) jobs.Step {
		step := shell(fmt.Sprint("exit ", code))
		step.Exit = meaning
		return step
	}
	next := shell("touch " + after)
	for _, c := range []struct {
		code   int
		means  jobs.Exit
		run    jobs.Status
		step   jobs.Status
		goesOn bool
	}{
		{0, jobs.Exit{}, jobs.Succeeded, jobs.Succeeded, true},
		{3, jobs.Exit{Success: []int{0, 3}}, jobs.Succeeded, jobs.Succeeded, true},
		{0, jobs.Exit{Success: []int{3}}, jobs.Failed, jobs.Failed, false},
		{99, jobs.Exit{Skip: []int{99}}, jobs.Succeeded, jobs.Skipped, false},
		{99, jobs.Exit{Retry: []int{99}}, jobs.Failed, jobs.Failed, false},
		{98, jobs.Exit{Skip: []int{99}}, jobs.Failed, jobs.Failed, false},
	} {
		os.Remove(after)
		got := execute(t, holdOf(1, 7, exit(c.code, c.means), next))
		_, err := os.Stat(after)
		if got.Status != c.run || got.Steps[0].Status != c.step || (err == nil) != c.goesOn {
			t.Errorf("exit %d under %+v: run %s, step %s, goes on %v", c.code, c.means, got.Status, got.Steps[0].Status, err == nil)
		}
	}
	step := exit(0, jobs.Exit{Success: []int{137}})
	step.Command = []string{"sh", "-c", "kill -KILL $$"}
	want(t, execute(t, holdOf(1, 7, step)), jobs.Failed, jobs.ReasonStep, "killed by a signal")
}
