// Package storetest is what a store promises, as tests: one suite that each body
// runs on a real server. A store that passes it may stand in for the others.
//
//	func TestStore(t *testing.T) { storetest.Run(t, open) }
//
// Each test is named after the promise that it proves. Promises that only one
// body makes (what its schema refuses, how it is away) are tested beside it.
//
// What may live here: what the comments of store.go say. What may not: SQL, a
// server, a mock.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

// crowd is how many callers want the same thing at once.
const crowd = 32

// A promise is one test. The store that it gets is its own, and migrated.
type promise struct {
	name string
	test func(t *testing.T, s store.Store)
}

// Run proves all promises on the stores that open returns: each of them fresh,
// empty, and not migrated.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	groups := []struct {
		name     string
		promises []promise
	}{
		{"Claim", claims}, {"Token", tokens}, {"Revision", revisions}, {"Finish", finishes}, {"Lease", leases}, {"Record", records},
		{"List", lists}, {"Jobs", states}, {"Fault", faults},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			for _, p := range group.promises {
				t.Run(p.name, func(t *testing.T) {
					s := open(t)
					t.Cleanup(s.Close)
					if err := s.Migrate(t.Context()); err != nil {
						t.Fatal(err)
					}
					p.test(t, s)
				})
			}
		})
	}
}

// epoch is the due time of the first tick of a test: of this month, so that the
// store has it in mind, and with microseconds, so that none get lost.
var epoch = time.Now().UTC().Truncate(time.Hour).Add(123456 * time.Microsecond)

// tick is the nth tick of a job, which are a minute apart. Its lock has the name
// of the job.
func tick(job string, n int) jobs.Tick { return tickUnder(job, job, n) }

func tickUnder(lock, job string, n int) jobs.Tick {
	return jobs.Tick{
		Job:     &jobs.Job{Name: job, Lock: lock, Overlap: jobs.OverlapSkip},
		Due:     epoch.Add(time.Duration(n) * time.Minute),
		Attempt: 1,
		Trigger: jobs.TriggerSchedule,
	}
}

// want is a claim of the tick, with a lease that outlasts any test.
func want(t jobs.Tick) store.Claim {
	return store.Claim{Tick: t, Replica: "one", Revision: "r1", Lease: time.Hour,
		Evidence: jobs.Evidence{Votes: 4, Masters: 5, Granted: 9876543 * time.Microsecond}}
}

// soon is the same with a lease that has ended as soon as the clock moves.
func soon(t jobs.Tick) store.Claim {
	c := want(t)
	c.Lease = time.Microsecond
	return c
}

func granted(t *testing.T, s store.Store, c store.Claim) jobs.Run {
	t.Helper()
	run, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatalf("claim of %s: %v", c.Tick, err)
	}
	return run
}

func finished(t *testing.T, s store.Store, run jobs.Run, o jobs.Outcome) jobs.Run {
	t.Helper()
	done, err := s.Finish(t.Context(), run, o)
	if err != nil {
		t.Fatalf("finish of run %d: %v", run.ID, err)
	}
	return done
}

func fetched(t *testing.T, s store.Store, id int64) jobs.Run {
	t.Helper()
	run, err := s.Run(t.Context(), id)
	if err != nil {
		t.Fatalf("run %d: %v", id, err)
	}
	return run
}

func listed(t *testing.T, s store.Store, f store.Filter) []jobs.Run {
	t.Helper()
	runs, err := s.Runs(t.Context(), f)
	if err != nil {
		t.Fatalf("runs of %+v: %v", f, err)
	}
	return runs
}

func ids(runs []jobs.Run) []int64 {
	list := make([]int64, 0, len(runs))
	for _, r := range runs {
		list = append(list, r.ID)
	}
	return list
}

// refused checks that an error is the one that it should be, and no other that a
// caller branches on.
func refused(t *testing.T, err, want error) {
	t.Helper()
	for _, e := range []error{store.ErrClaimed, store.ErrOverlap, store.ErrRevision, store.ErrFenced, store.ErrNotFound, store.ErrAway} {
		if errors.Is(err, e) != (e == want) {
			t.Fatalf("got the error %v, want %v", err, want)
		}
	}
	if err == nil {
		t.Fatalf("got no error, want %v", want)
	}
}

// together calls work crowd times at once, and returns what came of each.
func together[T any](work func(i int) (T, error)) (results []T, errs []error) {
	results, errs = make([]T, crowd), make([]error, crowd)
	start := make(chan struct{})
	var wait sync.WaitGroup
	for i := range crowd {
		wait.Go(func() {
			<-start
			results[i], errs[i] = work(i)
		})
	}
	close(start)
	wait.Wait()
	return results, errs
}

// count tells how often each of the errors came; those that are none of these
// end the test.
func count(t *testing.T, errs []error, known ...error) map[error]int {
	t.Helper()
	n := map[error]int{}
next:
	for _, err := range errs {
		for _, k := range known {
			if errors.Is(err, k) { // nil is nil
				n[k]++
				continue next
			}
		}
		t.Fatalf("unexpected error: %v", err)
	}
	return n
}

// eventually asks until the answer is yes: time passes by itself, we only wait.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	pause := time.NewTicker(2 * time.Millisecond)
	defer pause.Stop()
	for !ask() {
		select {
		case <-ctx.Done():
			t.Fatalf("never came true: %s", what)
		case <-pause.C:
		}
	}
}

// same compares two runs in everything but their steps.
func same(t *testing.T, got, want jobs.Run) {
	t.Helper()
	got.Steps, want.Steps = nil, nil
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("got the run\n%s\nwant\n%s", g, w)
	}
}

// says checks that a text tells what people need to know.
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not mention %q", err, part)
		}
	}
}
