package steps_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"quorate/jobs"
)

func shell(script string) jobs.Step { return jobs.Step{Command: []string{"sh", "-c", script}} }

func TestCommandSeesACleanEnvironment(t *testing.T) {
	t.Setenv("SHOP_PASSWORD", "canary")
	t.Setenv("LANG", "C.UTF-8")
	step := jobs.Step{Command: []string{"env"}, Env: map[string]string{"COLOUR": "blue", "QUORATE_FENCE": "99"}}
	got := execute(t, holdOf(3, 7, step))
	want(t, got, jobs.Succeeded, "")
	var names []string
	for line := range strings.Lines(got.Steps[0].Output) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		names = append(names, name)
		if w, ok := map[string]string{"QUORATE_JOB": "restock", "QUORATE_DUE": "2026-11-21T08:00:00.123456Z", "QUORATE_RUN": "3",
			"QUORATE_FENCE": "7", "QUORATE_ATTEMPT": "1", "QUORATE_LOCK": "inventory", "COLOUR": "blue"}[name]; ok && value != w {
			t.Errorf("%s=%s, want %s", name, value, w)
		}
	}
	for _, name := range names {
		if !slices.Contains([]string{"PATH", "HOME", "LANG", "TMPDIR", "TZ", "COLOUR", "PWD"}, name) && !strings.HasPrefix(name, "QUORATE_") {
			t.Errorf("%s got through", name)
		}
	}
	if len(names) < 8 {
		t.Errorf("too few variables: %v", names)
	}
}

func TestArgumentsReachTheCommandAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"; echo hi", "$(id)", "`id`", "a\nb", "-n", "*", "'\"", "${HOME}", "%s"} {
		got := execute(t, holdOf(1, 7, jobs.Step{Command: []string{"printf", "<%s>", arg}}))
		want(t, got, jobs.Succeeded, "")
		if out := got.Steps[0].Output; out != "<"+arg+">" {
			t.Errorf("%q arrived as %q", arg, out)
		}
	}
}

func TestFailureOfACommandIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{"plain": "hello", "lost": "#!/no/such/interpreter\n", "ok": "#!/bin/sh\npwd\n"} {
		mode := os.FileMode(0o755)
		if name == "plain" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		step jobs.Step
		text string
	}{
		{shell("echo out; echo err >&2; exit 3"), "exited with status 3"},
		{shell("kill -SEGV $$"), "was killed by a signal: segmentation fault"},
		{jobs.Step{Command: []string{"no-such-program"}}, `command "no-such-program" is not in PATH (`},
		{jobs.Step{Command: []string{"/no/such/program"}}, `command "/no/such/program" is not there`},
		{jobs.Step{Command: []string{dir + "/plain"}}, "may not be executed"},
		{jobs.Step{Command: []string{dir + "/lost"}}, "interpreter"},
		{jobs.Step{Command: []string{"true"}, Dir: dir + "/nosuch"}, "is not a folder"},
	} {
		want(t, execute(t, holdOf(1, 7, c.step)), jobs.Failed, jobs.ReasonStep, c.text)
	}
	got := execute(t, holdOf(1, 7, jobs.Step{Command: []string{"./ok"}, Dir: dir}))
	want(t, got, jobs.Succeeded, "")
	if out := strings.TrimSpace(got.Steps[0].Output); out != dir {
		t.Errorf("worked in %q", out)
	}
	got = execute(t, holdOf(1, 7, shell("echo one; echo two >&2; echo three")))
	if out := got.Steps[0].Output; out != "one\ntwo\nthree\n" {
		t.Errorf("output in another order: %q", out)
	}
}

// alive reports whether a process is there and not a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func pids(t *testing.T, out string) (list []int) {
	t.Helper()
	for line := range strings.Lines(out) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

const stubborn = `trap '' TERM; sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & echo $$; while :; do sleep 1; done`

func TestWholeGroupIsKilledAtTheDeadline(t *testing.T) {
	t.Parallel()
	step := shell(stubborn)
	step.Timeout = jobs.Duration(time.Second)
	h := holdOf(1, 7, step)
	h.Validity = func() time.Duration { return 400 * time.Millisecond } // shorter than the grace
	begun := time.Now()
	got := execute(t, h)
	want(t, got, jobs.Failed, jobs.ReasonTimeout, "the step's timeout of 1s has run out", "killed")
	if took := time.Since(begun); took < 1300*time.Millisecond || took > 4*time.Second {
		t.Errorf("took %s: want the timeout, and then what validity was left", took)
	}
	list := pids(t, got.Steps[0].Output)
	if len(list) != 2 {
		t.Fatalf("output %q", got.Steps[0].Output)
	}
	for _, pid := range list {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
	}
}

func TestCommandMayEndInPeace(t *testing.T) {
	t.Parallel()
	step := shell(`trap 'sleep 0.2; echo tidied; exit 0' TERM; echo begun; while :; do sleep 0.05; done`)
	step.Timeout = jobs.Duration(200 * time.Millisecond)
	begun := time.Now()
	got := execute(t, holdOf(1, 7, step))
	want(t, got, jobs.Failed, jobs.ReasonTimeout, "ended when it was told to")
	if out := got.Steps[0].Output; !strings.HasSuffix(out, "tidied\n") {
		t.Errorf("output %q", out)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("waited for the whole grace: %s", took)
	}
}

func TestNothingOfTheGroupOutlivesTheCommand(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	got := execute(t, holdOf(1, 7, shell(`sh -c 'trap "" TERM; echo $$; exec sleep 300' & sleep 0.3`)))
	want(t, got, jobs.Succeeded, "")
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("a child that holds our pipe held us for %s", took)
	}
	if !strings.Contains(got.Steps[0].Output, "left behind were killed") {
		t.Errorf("output %q", got.Steps[0].Output)
	}
	for _, pid := range pids(t, got.Steps[0].Output) {
		eventually(t, "the child is gone", func() bool { return !alive(pid) })
	}
}

func TestChildThatLeavesTheGroupDoesNotHoldUs(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	got := execute(t, holdOf(1, 7, shell(`setsid sh -c 'echo $$; exec sleep 300' & sleep 0.3`)))
	want(t, got, jobs.Succeeded, "")
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("held for %s", took)
	}
	for _, pid := range pids(t, got.Steps[0].Output) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestFloodOfOutputIsCapped(t *testing.T) {
	t.Parallel()
	got := execute(t, holdOf(1, 7, shell(`echo first; head -c 30000000 /dev/zero; echo; echo last`)))
	want(t, got, jobs.Succeeded, "")
	out := got.Steps[0].Output
	if len(out) > 4*64<<10 || !strings.HasPrefix(out, "first\n") || !strings.HasSuffix(out, "\nlast\n") ||
		!strings.Contains(out, "bytes cut") || strings.ContainsRune(out, 0) {
		t.Errorf("%d bytes: %.80q", len(out), out)
	}
}
