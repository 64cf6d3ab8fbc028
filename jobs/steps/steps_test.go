package steps_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"quorate/jobs"
	"quorate/jobs/steps"
)

func TestMain(m *testing.M) {
	if target := os.Getenv(asWorker); target != "" {
		os.Exit(work(target))
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func funcStep(fn jobs.Func) jobs.Step { return jobs.Step{Func: fn} }

func ok(context.Context, jobs.Run) error { return nil }

func TestStepsRunInOrderUntilOneFails(t *testing.T) {
	var told []string
	broken := errors.New("broken")
	h := holdOf(1, 7, funcStep(ok), funcStep(func(_ context.Context, run jobs.Run) error {
		if run.ID != 1 || run.Fence != 7 {
			t.Errorf("the function got run %+v", run)
		}
		return broken
	}), funcStep(ok))
	h.Progress = func(s jobs.StepRun) { told = append(told, fmt.Sprintf("%d %s %s", s.Index, s.Name, s.Status)) }
	got := execute(t, h)
	want(t, got, jobs.Failed, jobs.ReasonStep, `step "step2": broken`)
	if len(got.Steps) != 2 || got.Steps[1].Error != "broken" || got.Steps[1].Kind != "func" || got.Steps[1].Finished.IsZero() {
		t.Errorf("steps %+v", got.Steps)
	}
	if all := strings.Join(told, ", "); all != "0 step1 running, 0 step1 succeeded, 1 step2 running, 1 step2 failed" {
		t.Errorf("told of %s", all)
	}
}

func TestPanicIsAFailedStep(t *testing.T) {
	for name, fn := range map[string]jobs.Func{
		"panic: out of cheese": func(context.Context, jobs.Run) error { panic("out of cheese") },
		"nil pointer":          func(context.Context, jobs.Run) error { var j *jobs.Job; return errors.New(j.Name) },
		"runtime.Goexit":       func(context.Context, jobs.Run) error { runtime.Goexit(); return nil },
	} {
		got := execute(t, holdOf(1, 7, funcStep(fn)))
		want(t, got, jobs.Failed, jobs.ReasonStep, name)
		if strings.Contains(name, "panic") && !strings.Contains(got.Error, "steps_test.go") {
			t.Errorf("no stack: %s", got.Error)
		}
	}
}

func TestClockIsAskedBeforeEachStep(t *testing.T) {
	left := time.Second
	h := holdOf(1, 7, funcStep(func(context.Context, jobs.Run) error { left = 0; return nil }),
		funcStep(func(context.Context, jobs.Run) error { t.Error("was run without a lease"); return nil }))
	h.Validity = func() time.Duration { return left }
	got := execute(t, h) // with a context that is open still
	want(t, got, jobs.Failed, jobs.ReasonLeaseLost, `step "step2" was not begun`, "lease has ended")
	if len(got.Steps) != 1 || got.Steps[0].Status != jobs.Succeeded {
		t.Errorf("steps %+v", got.Steps)
	}
}

func TestContextThatHasEndedBeginsNothing(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(steps.ErrShutdown)
	var exec steps.Executor
	got := exec.Execute(ctx, holdOf(1, 7, funcStep(func(context.Context, jobs.Run) error { t.Error("was run"); return nil })))
	want(t, got, jobs.Failed, jobs.ReasonShutdown, "was not begun", "shutting down")
}

func TestFunctionThatIgnoresItsContextIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		step := funcStep(func(context.Context, jobs.Run) error { <-release; return nil })
		step.Timeout = jobs.Duration(time.Minute)
		h := holdOf(1, 7, step)
		h.Job.Timeout = jobs.Duration(time.Hour)
		begun := time.Now()
		want(t, execute(t, h), jobs.Unknown, jobs.ReasonOutcome, "may be at work still", "the step's timeout of 1m")
		if took := time.Since(begun); took != time.Minute+5*time.Second {
			t.Errorf("given up after %s", took)
		}
		close(release)
	})
}

func TestShorterOfTwoTimeoutsIsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context, _ jobs.Run) error { <-ctx.Done(); return ctx.Err() }
		for _, c := range []struct {
			job, step time.Duration
			text      string
		}{{time.Hour, time.Minute, "the step's timeout of 1m"}, {time.Minute, time.Hour, "the job's timeout of 1m"}, {time.Minute, 0, "the job's timeout of 1m"}} {
			step := funcStep(wait)
			step.Timeout = jobs.Duration(c.step)
			h := holdOf(1, 7, step)
			h.Job.Timeout = jobs.Duration(c.job)
			want(t, execute(t, h), jobs.Failed, jobs.ReasonTimeout, c.text)
		}
	})
}

func TestWorkThatWasFinishedCountsThoughTheContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var exec steps.Executor
	got := exec.Execute(ctx, holdOf(1, 7, funcStep(func(context.Context, jobs.Run) error { cancel(); return nil })))
	want(t, got, jobs.Succeeded, "")
}
