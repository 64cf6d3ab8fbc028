package steps_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
)

// A worker is a process of its own that runs steps for a test, one run at a time,
// so that it can be stopped or killed as a replica can.
type worker struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// An order is what a worker is told to run.
type order struct {
	Job   *jobs.Job
	Run   jobs.Run
	Valid time.Duration // how long the lease is from then on
}

// asWorker in its environment has the test binary be one. Its value is the URL of
// the target.
const asWorker = "QUORATE_TEST_STEPS_WORKER"

func work(target string) int {
	ctx := context.Background()
	targets, err := steps.Open(ctx, map[string]jobs.Secret{"shop": jobs.Secret(target)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	exec := steps.Executor{Targets: targets}
	for orders := json.NewDecoder(os.Stdin); ; {
		var o order
		if err := orders.Decode(&o); err == io.EOF {
			return 0
		} else if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		end := time.Now().Add(o.Valid)
		got := exec.Execute(ctx, steps.Hold{Job: o.Job, Run: o.Run, Validity: func() time.Duration { return time.Until(end) }})
		if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
			return 1
		}
	}
}

func newWorker(t *testing.T, target string) *worker {
	t.Helper()
	w := &worker{process: exec.Command(os.Args[0], "-test.run=^$")}
	w.process.Env = append(os.Environ(), asWorker+"="+target)
	w.process.Stderr = os.Stderr
	in, err := w.process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.in, w.out = in, bufio.NewReader(out)
	if err := w.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kill)
	return w
}

func (w *worker) kill() {
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
}

// begin has the worker run something; end waits until it has.
func (w *worker) begin(t *testing.T, o order) {
	t.Helper()
	if err := json.NewEncoder(w.in).Encode(o); err != nil {
		t.Error(err)
	}
}

func (w *worker) end(t *testing.T) (got jobs.Outcome) {
	t.Helper()
	line, err := w.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &got)
	}
	if err != nil {
		t.Errorf("the worker is gone: %v", err)
	}
	return got
}

// stop returns when every thread of the worker stands still.
func (w *worker) stop() {
	_ = w.process.Process.Signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	_, _ = syscall.Wait4(w.process.Process.Pid, &status, syscall.WUNTRACED, nil)
}

func (w *worker) wake() { _ = w.process.Process.Signal(syscall.SIGCONT) }

// rounds is how often a test does what it does: a few times, or as often as
// QUORATE_TEST_ROUNDS says.
func rounds(few int) int {
	if n, err := strconv.Atoi(os.Getenv("QUORATE_TEST_ROUNDS")); err == nil {
		return n
	}
	return few
}
