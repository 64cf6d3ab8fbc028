package steps

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"quorate/jobs"
)

// grace is how long a function may take to return, and a command to end, once its
// context has.
const grace = 5 * time.Second

// call runs a step that is written in Go. It has a goroutine of its own, so that
// neither a panic nor runtime.Goexit takes the run with it, and so that one that
// ignores its context does not hold the replica.
func call(ctx context.Context, run jobs.Run, fn jobs.Func) error {
	ended := make(chan error, 1)
	go func() {
		err := errors.New("left by runtime.Goexit")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			ended <- err
		}()
		err = fn(ctx, run)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(grace):
		return unknown("did not return within %s of its context's end, and may be at work still: %w", grace, context.Cause(ctx))
	}
}
