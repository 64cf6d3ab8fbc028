package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

const planned = `
[targets.shop]
url = "sqlite:x.db"
[jobs.same]
[[jobs.same.steps]]
command = ["true"]
[jobs.gone]
[[jobs.gone.steps]]
command = ["true"]
[jobs.changed]
at = 2099-01-01T00:00:00Z
[[jobs.changed.steps]]
name = "sell"
target = "shop"
sql = """
SELECT 1,
  2,
  3"""
[jobs.hidden]
[[jobs.hidden.steps]]
http = { url = "https://example.com/hunter2" }
`

func TestPlanSaysWhatAFileWouldChange(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("config.toml", []byte(planned), 0o600); err != nil {
		t.Fatal(err)
	}
	screen, _ := startDev(t)
	screen.waitFor(t, "try ", 20*time.Second)
	eventuallyAnswers(t)
	planUntil(t, func(p plan) bool { return len(p.Replicas) == 3 })

	if out, code := quorate(t, "plan"); code != 0 || !strings.HasPrefix(out, "Nothing changes: this is what runs.\n") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	changed := strings.NewReplacer(
		"[jobs.gone", "[jobs.fresh", "jobs.gone", "jobs.fresh", "2099-01-01T00:00:00Z", "2099-01-01T00:00:01Z", "  2,\n", "  4,\n", "/hunter2", "/hunter3",
		"[jobs.hidden]", "[jobs.hidden]\nttl = \"20s\"",
	).Replace(planned)
	if err := os.WriteFile("new.toml", []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := quorate(t, "plan", "-c", "new.toml")
	want := `\+ fresh
~ changed
    at  2099-01-01T00:00:00Z → 2099-01-01T00:00:01Z
    steps.sell.sql
      -   2,
      \+   4,
~ hidden
    ttl  10s → 20s
- gone   its history stays
1 added, 2 changed, 1 removed, 1 as they are.

REPLICA +REVISION +SEEN
r1 +[0-9a-f]{12}  another one  now
r2 +[0-9a-f]{12}  another one  now
r3 +[0-9a-f]{12}  another one  now
`
	if !regexp.MustCompile(`^`+want+`$`).MatchString(out) || code != 0 {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if err := os.WriteFile("new.toml", []byte(strings.Replace(planned, "/hunter2", "/hunter3", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ = quorate(t, "plan", "-c", "new.toml"); !strings.HasPrefix(out, "~ hidden\n    in an address") || strings.Contains(out, "hunter") {
		t.Errorf("a change that is not shown:\n%s", out)
	}
	out, _ = quorate(t, "plan", "-c", "new.toml", "--json")
	var p plan
	if err := json.Unmarshal([]byte(out), &p); err != nil || len(p.Changed) != 1 || len(p.Unchanged) != 3 || len(p.Replicas) != 3 || p.Revision == p.Replicas[0].Revision {
		t.Errorf("%v: %s", err, out)
	}
	if _, code = quorate(t, "plan", "-c", "gone.toml"); code != 2 {
		t.Errorf("a file that is not there: exit %d", code)
	}
}

// planUntil asks for a plan until it is as it should be.
func planUntil(t *testing.T, enough func(plan) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, _ := quorate(t, "plan", "--json")
		var p plan
		if err := json.Unmarshal([]byte(out), &p); err == nil && enough(p) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(out)
		}
	}
}

func TestLinesThatDifferAreShownAndNoOthers(t *testing.T) {
	for _, c := range []struct{ was, is, want string }{
		{"a b c", "a b c", ""},
		{"a b c", "a x c", "- b,+ x"},
		{"a b c", "b c d", "- a,+ d"},
		{"", "a b", "- ,+ a,+ b"},
		{"a a b", "a b b", "- a,+ b"},
	} {
		if got := strings.Join(lineChanges(strings.Split(c.was, " "), strings.Split(c.is, " ")), ","); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.was, c.is, got, c.want)
		}
	}
}
