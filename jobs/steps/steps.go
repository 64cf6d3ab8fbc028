// Package steps says how a step runs: SQL in a transaction of its target, an HTTP
// request, a command, a Go function.
//
// [Executor.Execute] runs the steps of a run in order and stops at the first that
// does not succeed; one that is there for its failure runs then. A step with retries
// is tried again where nothing of it has happened, and where that is not known only
// if it is idempotent. Before each it compares the lease's validity with the clock; a
// context alone would not do, because a process that was frozen finds its contexts
// still open when it wakes. What came of it is a [jobs.Outcome]:
//
//	succeeded            every step did
//	failed(step)         a step failed, or its effect is known not to have happened
//	failed(timeout)      the job's timeout ran out, or the step's own
//	failed(lease_lost)   the lease ended first, or the target saw a higher fence
//	failed(shutdown)     the context ended because of [ErrShutdown]
//	unknown(outcome)     an effect was begun and nobody can say how it ended
//
// What is promised differs by kind:
//
//   - SQL: the effect of a (job, due, step) commits at most once, and never after
//     a newer run of the same lock has committed, whatever clocks, pauses and
//     networks do. One transaction raises the fence, writes the marker and runs
//     the statements; a step that finds its marker is done already. A COMMIT whose
//     answer was lost is looked up, never guessed. This needs the two guard tables
//     in the target, and statements that can live in a transaction.
//     One that says that it has no transaction has none of this: it is as good as a
//     command.
//   - HTTP: the request is sent once. Nothing re-sends it, no redirect is followed.
//     An answer that never came is unknown, and the receiver gets a fence and a key.
//   - Command: the process group is gone when the step has ended. A child that
//     leaves the group (setsid) is not ours to find.
//   - Go function: a panic is a failed step. A function that ignores its context
//     cannot be stopped, so it is given up as unknown.
//
// What may live here: how one step is carried out, and what came of it. What may
// not: when, how often and under which lock; that is the scheduler's.
package steps

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"quorate/jobs"
)

// ErrShutdown is the cause that a context is cancelled with when the replica stops.
// A context that ends for any other cause than this, context.Canceled or a timeout
// of ours has ended because the lease did.
var ErrShutdown = errors.New("replica is shutting down")

// errLease: the lease was found to have ended before the next thing was begun.
var errLease = errors.New("the lease has ended")

// A timeoutError is the cause of a context that ended by a timeout of the config.
type timeoutError struct {
	whose string
	limit time.Duration
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("the %s's timeout of %s has run out", e.whose, jobs.Duration(e.limit))
}

// An unknownError wraps what went wrong after an effect was begun.
type unknownError struct{ err error }

func (e *unknownError) Error() string { return e.err.Error() }
func (e *unknownError) Unwrap() error { return e.err }

func unknown(format string, args ...any) error {
	return &unknownError{fmt.Errorf(format, args...)}
}

// An undoneError wraps what went wrong where nothing of the step has happened.
type undoneError struct{ err error }

func (e *undoneError) Error() string { return e.err.Error() }
func (e *undoneError) Unwrap() error { return e.err }

// undone marks an error so, unless what it is about may have happened after all.
func undone(err error) error {
	var lost *unknownError
	if err == nil || errors.As(err, &lost) {
		return err
	}
	return &undoneError{err}
}

// A Hold is what a run works under.
type Hold struct {
	Job *jobs.Job
	Run jobs.Run

	// Validity is how much longer the lease may be trusted, by our clock.
	Validity func() time.Duration

	// Progress, where it is set, is told when a step begins (running) and ends.
	Progress func(jobs.StepRun)
}

// check says why nothing more may be begun.
func (h Hold) check(ctx context.Context) error {
	if left := h.Validity(); left <= 0 {
		return fmt.Errorf("%w (%s ago)", errLease, (-left).Round(time.Millisecond))
	}
	return context.Cause(ctx)
}

// An Executor runs steps. Its zero value runs those that need no SQL target.
type Executor struct {
	Targets *Targets

	// TLS is used for https; nil means the roots of the system.
	TLS *tls.Config

	// Allow is asked about each address that an HTTP step is about to connect to,
	// after its name was resolved. Nil allows all but link-local ones, where clouds
	// hand out credentials.
	Allow func(netip.AddrPort) error

	// LookUp is how long a COMMIT may take to answer, and again how long one whose
	// answer was lost is looked up. 0 means 10 s.
	LookUp time.Duration
}

// A result is what a step leaves besides its error.
type result struct {
	rows    int64
	output  string
	skipped bool // it found that there is nothing to do, for the steps after it either
}

// Execute runs the steps of a run. It returns when none of them is at work any
// more, or when it has given up on one that cannot be stopped.
func (x *Executor) Execute(ctx context.Context, hold Hold) jobs.Outcome {
	ctx, cancel := limit(ctx, "job", hold.Job.Timeout.D())
	defer cancel()
	out := jobs.Outcome{Status: jobs.Succeeded}
	for i, step := range hold.Job.Steps {
		if hold.Job.OnlyOnFailure(step.Name) {
			continue
		}
		if err := hold.check(ctx); err != nil {
			out.Status, out.Reason = verdict(ctx, err)
			out.Error = text(fmt.Sprintf("step %q was not begun: %v", step.Name, err))
			return out
		}
		done, reason := x.step(ctx, hold, i, step)
		out.Steps = append(out.Steps, done)
		switch done.Status {
		case jobs.Succeeded:
			continue
		case jobs.Skipped:
			return out
		}
		out.Status, out.Reason = done.Status, reason
		out.Error = text(fmt.Sprintf("step %q: %s", step.Name, done.Error))
		if done.Status == jobs.Failed && step.OnFailure != "" {
			x.onFailure(ctx, hold, step.OnFailure, &out)
		}
		return out
	}
	return out
}

// onFailure runs the step that is there for another one that has failed. The run
// has failed all the same; and its outcome is unknown if that of this step is.
func (x *Executor) onFailure(ctx context.Context, hold Hold, name string, out *jobs.Outcome) {
	i := slices.IndexFunc(hold.Job.Steps, func(s jobs.Step) bool { return s.Name == name })
	err := hold.check(ctx)
	if i < 0 || err != nil {
		out.Error = text(fmt.Sprintf("%s; on_failure %q was not begun: %v", out.Error, name, err))
		return
	}
	done, reason := x.step(ctx, hold, i, hold.Job.Steps[i])
	out.Steps = append(out.Steps, done)
	if done.Status == jobs.Unknown {
		out.Status, out.Reason = done.Status, reason
	}
	if done.Error != "" {
		out.Error = text(fmt.Sprintf("%s; on_failure %q: %s", out.Error, name, done.Error))
	}
}

// step runs one step, and says how it ended.
func (x *Executor) step(ctx context.Context, hold Hold, index int, step jobs.Step) (jobs.StepRun, jobs.Reason) {
	done := jobs.StepRun{Index: index, Name: step.Name, Kind: step.Kind(), Status: jobs.Running, Started: time.Now()}
	if hold.Progress != nil {
		hold.Progress(done)
	}
	last := x.tries(ctx, hold, step)
	done.Finished, done.Rows, done.Output = time.Now(), last.res.rows, text(last.res.output)
	done.Status = last.status
	if last.err != nil {
		done.Error = text(last.err.Error())
	}
	if hold.Progress != nil {
		hold.Progress(done)
	}
	return done, last.reason
}

func (x *Executor) run(ctx context.Context, hold Hold, step jobs.Step) (result, error) {
	switch step.Kind() {
	case "sql":
		return x.sql(ctx, hold, step)
	case "http":
		return x.http(ctx, hold, step)
	case "command":
		return command(ctx, hold, step)
	case "func":
		return result{}, call(ctx, hold.Run, step.Func)
	}
	return result{}, errors.New("has nothing to do: give it sql, http or command")
}

// limit bounds a context, where there is a bound.
func limit(ctx context.Context, whose string, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, &timeoutError{whose, d})
}

// verdict says how a step that returned an error has ended. An ended context is
// the reason of whatever error it brought about.
func verdict(ctx context.Context, err error) (jobs.Status, jobs.Reason) {
	var lost *unknownError
	var late *timeoutError
	var fenced *fencedError
	cause := context.Cause(ctx)
	switch {
	case errors.As(err, &lost):
		return jobs.Unknown, jobs.ReasonOutcome
	case errors.Is(err, errLease), errors.As(err, &fenced):
		return jobs.Failed, jobs.ReasonLeaseLost
	case cause == nil:
		return jobs.Failed, jobs.ReasonStep
	case errors.As(cause, &late):
		return jobs.Failed, jobs.ReasonTimeout
	case errors.Is(cause, ErrShutdown), cause == context.Canceled:
		return jobs.Failed, jobs.ReasonShutdown
	}
	return jobs.Failed, jobs.ReasonLeaseLost
}

// because puts why the context ended before what that did to a step.
func because(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(err, cause):
		return err
	case err == nil:
		return cause
	}
	return fmt.Errorf("%w (%w)", cause, err)
}
