package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"quorate/jobs"
)

// passed are the variables of our own environment that a command may see. All
// else, passwords among it, stays here.
var passed = []string{"PATH", "HOME", "LANG", "TMPDIR", "TZ"}

const (
	groupPoll = 10 * time.Millisecond
	pipeWait  = time.Second // for what was written to be read, once the group is gone
)

// command runs a program in a process group of its own, and returns when nothing is
// left of the group.
func command(ctx context.Context, hold Hold, step jobs.Step) (result, error) {
	// Where the system has it, the child dies with the thread that began it, so a
	// killed replica leaves no child behind. The thread must stay ours for that.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd, err := program(hold.Run, step)
	if err != nil {
		return result{}, undone(err)
	}
	var out capture
	read, err := attach(cmd, &out)
	if err != nil {
		return result{}, undone(err)
	}
	err = cmd.Start()
	cmd.Stdout.(*os.File).Close()
	if err != nil {
		read()
		return result{}, undone(startError(step, err))
	}
	left, err := oversee(ctx, hold, cmd)
	read()
	res := result{output: out.String()}
	if left {
		res.output += "\n[processes that it had left behind were killed]\n"
	}
	err = meaning(ctx, step, &res, err)
	return res, err
}

// meaning says what a command's end means to its step. A context that has ended was
// the reason, whatever the code.
func meaning(ctx context.Context, step jobs.Step, res *result, err error) error {
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode() // -1 for one that was killed
	} else if err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return exitError(err)
	case step.Exit.Succeeds(code):
		return nil
	case slices.Contains(step.Exit.Skip, code):
		res.skipped = true
		return nil
	case slices.Contains(step.Exit.Retry, code):
		return undone(fmt.Errorf("exited with status %d, which asks for another try", code))
	case err == nil:
		return errors.New("exited with status 0, which is not among the codes of success")
	}
	return exitError(err)
}

func program(run jobs.Run, step jobs.Step) (*exec.Cmd, error) {
	argv := slices.Clone(step.Command)
	if step.Dir != "" {
		if info, err := os.Stat(step.Dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("dir %q is not a folder that can be entered", step.Dir)
		}
		if strings.Contains(argv[0], "/") && !filepath.IsAbs(argv[0]) {
			argv[0] = filepath.Join(step.Dir, argv[0]) // as a shell would find it there
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if cmd.Err != nil {
		return nil, startError(step, cmd.Err)
	}
	cmd.Dir = step.Dir
	cmd.Env = environment(run, step)
	cmd.SysProcAttr = processAttributes()
	return cmd, nil
}

// environment is all that a command gets to see. Ours come last: they win.
func environment(run jobs.Run, step jobs.Step) []string {
	var env []string
	for _, name := range passed {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range step.Env {
		env = append(env, name+"="+value)
	}
	return append(env,
		"QUORATE_JOB="+run.Job,
		"QUORATE_DUE="+run.Due.UTC().Format(time.RFC3339Nano),
		"QUORATE_RUN="+strconv.FormatInt(run.ID, 10),
		"QUORATE_FENCE="+strconv.FormatInt(int64(run.Fence), 10),
		"QUORATE_ATTEMPT="+strconv.Itoa(run.Attempt),
		"QUORATE_LOCK="+run.Lock,
	)
}

// attach gives the command one pipe for both its outputs, so that they interleave
// as they were written. The pipe is ours, not exec's: Wait then returns when the
// program has ended, and not when the last heir of the pipe has. Read returns when
// all was read, or soon after.
func attach(cmd *exec.Cmd, to *capture) (read func(), err error) {
	from, into, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = into, into
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			to.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return func() {
		from.SetReadDeadline(time.Now().Add(pipeWait))
		<-done
		from.Close()
	}, nil
}

// oversee waits for the program, and stops its whole group when the context ends:
// politely first, and for good after the grace or where the lease ends. Left says
// that the program had ended by itself and others of its group had not.
func oversee(ctx context.Context, hold Hold, cmd *exec.Cmd) (left bool, err error) {
	group := cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
		return syscall.Kill(-group, syscall.SIGKILL) == nil, err
	case <-ctx.Done():
	}
	syscall.Kill(-group, syscall.SIGTERM)
	patience, cancel := context.WithTimeout(context.Background(), max(0, min(grace, hold.Validity())))
	defer cancel()
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for waiting := true; waiting; {
		select {
		case <-poll.C:
			waiting = syscall.Kill(-group, 0) == nil // an id that a group has is not given to another
		case <-patience.Done():
			waiting = false
		}
	}
	syscall.Kill(-group, syscall.SIGKILL)
	if err = <-ended; err == nil {
		err = errors.New("ended when it was told to")
	}
	return false, err
}

func startError(step jobs.Step, err error) error {
	name := step.Command[0]
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("command %q is not in PATH (%s)", name, os.Getenv("PATH"))
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("command %q is not there, or the interpreter that its first line names is not", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("command %q may not be executed: chmod +x it, or name its interpreter first", name)
	}
	return fmt.Errorf("command %q could not be started: %w", name, err)
}

func exitError(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Errorf("was killed by a signal: %s", status.Signal())
	}
	return fmt.Errorf("exited with status %d", exit.ExitCode())
}
