package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"quorate/web"
)

// The test binary is quorate itself where the environment says so, so that tests
// can start replicas as processes.
const asQuorate = "QUORATE_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asQuorate) != "" {
		main()
	}
	testscript.Main(m, map[string]func(){"quorate": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata"})
}

// A console is what a program printed so far.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

func (c *console) waitFor(t *testing.T, pattern string, within time.Duration) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		if m := re.FindStringSubmatch(c.String()); m != nil {
			return m
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q within %s in:\n%s", pattern, within, c)
		}
	}
}

// quorate runs a command in this process and returns what it printed.
func quorate(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, &stdout, &stderr)
	if stderr.Len() > 0 {
		t.Logf("quorate %s: %s", strings.Join(args, " "), &stderr)
	}
	return stdout.String(), code
}

func startDev(t *testing.T, args ...string) (screen *console, stop func()) {
	t.Helper()
	screen = &console{}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, append([]string{"dev", "--listen", "127.0.0.1:0"}, args...), screen, screen) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if c := <-code; c != 0 {
			t.Errorf("dev ended with %d:\n%s", c, screen)
		}
	})
	t.Cleanup(stop)
	return screen, stop
}

func TestDevRunsTheSampleFromNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	state := filepath.Join(t.TempDir(), "state")
	screen, stop := startDev(t, "--state", state)
	screen.waitFor(t, `inventory +r[123] +[345]/5 +\d\.\d\ds +\d+ms +succeeded`, 20*time.Second)
	for _, want := range []string{`page +http://127\.0\.0\.1:\d+/signin\?token=\w+`, `jobs +7 of the built-in sample`, `--state ` + regexp.QuoteMeta(state)} {
		screen.waitFor(t, want, time.Second)
	}

	out, code := quorate(t, "run", "stocktake", "--wait", "--state", state)
	if code != 0 || !regexp.MustCompile(`apple \d+`).MatchString(out) {
		t.Errorf("stocktake: exit %d\n%s", code, out)
	}
	if out, code = quorate(t, "run", "nosuch", "--state", state); code != 2 {
		t.Errorf("run nosuch: exit %d\n%s", code, out)
	}
	if out, code = quorate(t, "jobs", "--state", state); code != 0 || !regexp.MustCompile(`(?m)^inventory +in \d`).MatchString(out) {
		t.Errorf("jobs: exit %d\n%s", code, out)
	}
	runs := runsJSON(t, "--job", "inventory", "--limit", "1", "--state", state)
	if len(runs) != 1 || runs[0].Fence == 0 || runs[0].Replica == "" || runs[0].Attempt != 1 {
		t.Errorf("runs --json: %+v", runs)
	}
	if out, code = quorate(t, "show", fmt.Sprint(runs[0].ID), "--state", state); code != 0 || !strings.Contains(out, "sell (sql): succeeded") {
		t.Errorf("show: exit %d\n%s", code, out)
	}
	last := runs[0].ID
	stop()

	// The state survives a restart; --fresh forgets it.
	_, stop = startDev(t, "--state", state)
	runs = runsUntil(t, state, func(runs []web.Run) bool { return runs[0].ID > last })
	if first := runs[len(runs)-1]; first.ID != 1 {
		t.Errorf("the first run is %d after a restart, want 1", first.ID)
	}
	before := runs[0].Due
	stop()
	startDev(t, "--state", state, "--fresh")
	runs = runsUntil(t, state, func(runs []web.Run) bool { return runs[0].Status == "succeeded" })
	if first := runs[len(runs)-1]; first.ID != 1 || first.Due.Before(before) {
		t.Errorf("the first run after --fresh is %d, due %s; the last one before was due %s", first.ID, first.Due, before)
	}
}

// runsUntil asks a session that is about to start for its runs, until they are as
// they should be.
func runsUntil(t *testing.T, state string, enough func([]web.Run) bool) (runs []web.Run) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(runs) == 0 || !enough(runs); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("runs: %+v", runs)
		}
		runs = runsJSON(t, "--limit", "1000", "--state", state)
	}
	return runs
}

// runsJSON returns what `runs --json` printed; nothing while nobody answers.
func runsJSON(t *testing.T, args ...string) (runs []web.Run) {
	t.Helper()
	out, code := quorate(t, append([]string{"runs", "--json"}, args...)...)
	if code != 0 {
		return nil
	}
	for line := range strings.Lines(out) {
		var r web.Run
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		runs = append(runs, r)
	}
	return runs
}

func TestARunThatFailsIsExitCode1(t *testing.T) {
	t.Chdir(t.TempDir())
	err := os.WriteFile("config.toml", []byte("[jobs.bad]\n[[jobs.bad.steps]]\ncommand = [\"false\"]\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	screen, _ := startDev(t)
	screen.waitFor(t, "try ", 20*time.Second)
	eventuallyAnswers(t)
	if out, code := quorate(t, "run", "bad", "--wait"); code != 1 || !strings.Contains(out, "failed (step)") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func eventuallyAnswers(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, code := quorate(t, "jobs"); code == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody answers")
		}
	}
}

// withToken is a world of one variable, and no files.
func withToken(token string) world {
	return world{func(name string) (string, bool) { return token, name == "QUORATE_TOKEN" }, fstest.MapFS{}}
}

func TestTheSampleIsTheConfigOfTheRepository(t *testing.T) {
	text, err := os.ReadFile("../../config.toml")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != sample {
		t.Error("cmd/quorate/sample.toml differs from config.toml: cp config.toml cmd/quorate/sample.toml")
	}
	c, err := parseConfig("config.toml", sample, withToken("0123456789abcdef"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Redlock.Masters) != 5 || c.Jobs["inventory"].Schedule().String() != "every 2s" {
		t.Errorf("%+v", c)
	}
}

func TestTheConfigOfTheDeploymentIsRight(t *testing.T) {
	text, err := os.ReadFile("../../deploy/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	// Its secrets are files of the containers.
	secrets := regexp.MustCompile(`"file:/run/secrets/(\S+)-url"`).ReplaceAllString(string(text), `"postgres://$1@db/x"`)
	secrets = strings.ReplaceAll(secrets, "file:/run/secrets/web-token", fleetToken)
	if _, err := parseConfig("deploy/config.toml", secrets, thisWorld(), nil); err != nil {
		t.Error(err)
	}
}

// What the sample shows commented out, with its default, must be right as well.
func TestWhatTheSampleCommentsOutIsUnderstoodToo(t *testing.T) {
	text := uncommented()
	if text == sample {
		t.Fatal("nothing is commented out")
	}
	if _, err := parseConfig("config.toml", text, withToken("0123456789abcdef"), nil); err != nil {
		t.Error(err)
	}
}

func TestSecretsOfAConfigAreNotPrinted(t *testing.T) {
	c, err := parseConfig("config.toml", strings.ReplaceAll(sample, "shop@127", "shop:hunter2@127"), withToken("hunter2hunter2hunter2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if all := fmt.Sprintf("%+v %#v", c, c.Targets); strings.Contains(all, "hunter2") {
		t.Errorf("%s", all)
	}
}
