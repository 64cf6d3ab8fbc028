package steps

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"quorate/jobs"
)

// A try is one time that a step was run.
type try struct {
	res    result
	err    error
	status jobs.Status
	reason jobs.Reason
}

// maxBackoff is the longest pause between two tries.
const maxBackoff = 5 * time.Minute

// tries runs a step until it need not, or must not, be tried again. Where nobody
// knows how one of them ended, and none succeeded after it, nobody knows of all.
func (x *Executor) tries(ctx context.Context, hold Hold, step jobs.Step) (t try) {
	var log string
	doubt := false
	defer func() {
		t.res.output = log + t.res.output
		if doubt && t.status == jobs.Failed {
			t.status, t.reason = jobs.Unknown, jobs.ReasonOutcome
		}
	}()
	for n, pause := 1, step.Backoff.D(); ; n, pause = n+1, min(2*pause, maxBackoff) {
		t = x.try(ctx, hold, step)
		if n > step.Retries || !t.mayRepeat(step) || context.Cause(ctx) != nil {
			return t
		}
		doubt = doubt || t.status == jobs.Unknown
		wait := pause/2 + rand.N(pause/2+1)
		log += fmt.Sprintf("%s[try %d of %d failed: %s; the next one in %s]\n",
			t.res.output, n, step.Retries+1, t.err, wait.Round(time.Millisecond))
		t.res.output = ""
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		if err := hold.check(ctx); err != nil {
			t.status, t.reason = verdict(ctx, err)
			t.err = fmt.Errorf("%w (there was no time for another try: %w)", t.err, err)
			return t
		}
	}
}

// try runs a step once, for no longer than its timeout.
func (x *Executor) try(ctx context.Context, hold Hold, step jobs.Step) (t try) {
	ctx, cancel := limit(ctx, "step", step.Timeout.D())
	defer cancel()
	t.res, t.err = x.run(ctx, hold, step)
	switch {
	case t.err == nil && t.res.skipped:
		t.status = jobs.Skipped
		return t
	case t.err == nil:
		t.status = jobs.Succeeded
		return t
	}
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done() // the network can notice a deadline a moment before the context does
	}
	t.status, t.reason = verdict(ctx, t.err)
	t.err = because(ctx, t.err)
	return t
}

// mayRepeat reports whether trying again can do no harm: nothing has happened, or
// it may happen twice. A run that has lost its lease has no more tries.
func (t try) mayRepeat(step jobs.Step) bool {
	var nothing *undoneError
	switch {
	case t.err == nil, t.reason == jobs.ReasonLeaseLost, t.reason == jobs.ReasonShutdown:
		return false
	case errors.As(t.err, &nothing):
		return true
	}
	return step.Idempotent
}
