package jobs

import (
	"strings"
	"testing"
)

// judged are the mistakes of a job with these steps.
func judged(steps ...Step) string {
	var all strings.Builder
	for _, p := range (&Job{Name: "x", Steps: steps}).Prepare() {
		all.WriteString(strings.Join(p.Key, ".") + ": " + p.Message + "\n")
	}
	return all.String()
}

func TestEveryMistakeOfAStepIsToldWithItsKey(t *testing.T) {
	no := false
	run := []string{"true"}
	sql := func(s Step) Step {
		s.Target, s.SQL = "shop", Strings{"SELECT 1"}
		return s
	}
	for want, s := range map[string]Step{
		"0.retries: ":       {Command: run, Retries: -1},
		"0.backoff: ":       {Command: run, Backoff: 1},
		"steps.0.timeout: ": {Command: run, Timeout: -1},
		"0.idempotent: ":    sql(Step{Idempotent: true}),
		"0.isolation: step \"step1\": isolation \"":  sql(Step{Isolation: "snapshot"}),
		"0.isolation: step \"step1\": isolation is":  sql(Step{Isolation: "serializable", Transactional: &no}),
		"0.isolation: step \"step1\": isolation bel": {Command: run, Isolation: "serializable"},
		"0.transactional: ":                          {Command: run, Transactional: &no},
		"0.exit: step \"step1\": exit bel":           sql(Step{Exit: Exit{Skip: []int{3}}}),
		"exit code 3 has two meanings":               {Command: run, Exit: Exit{Skip: []int{3}, Retry: []int{3}}},
		"exit code 0 has two meanings":               {Command: run, Exit: Exit{Skip: []int{0}}},
		"exit code 256: want":                        {Command: run, Exit: Exit{Skip: []int{256}}},
		"cannot be what runs when it has failed":     {Command: run, OnFailure: "step1"},
		"no step of this job is named \"undo\"":      {Command: run, OnFailure: "undo"},
		"has 2 of sql, http and command":             {Command: run, HTTP: &HTTP{URL: "http://h"}},
	} {
		if got := judged(s); !strings.Contains(got, want) {
			t.Errorf("%+v: %q lacks %q", s, got, want)
		}
	}
	chain := judged(Step{Name: "a", Command: run, OnFailure: "b"}, Step{Name: "b", Command: run, OnFailure: "c"}, Step{Name: "c", Command: run})
	if !strings.Contains(chain, "0.on_failure: ") {
		t.Errorf("a chain of steps on failure: %q", chain)
	}
	good := []Step{
		{Name: "a", Command: run, Retries: 3, Idempotent: true, OnFailure: "z", Exit: Exit{Success: []int{1}, Skip: []int{0}}},
		{Name: "b", HTTP: &HTTP{URL: "https://h"}, OnFailure: "z"},
		sql(Step{Name: "c", Transactional: &no, Idempotent: true}),
		sql(Step{Name: "z", Isolation: "repeatable read"}),
	}
	j := &Job{Name: "x", Steps: good}
	if bad := j.Prepare(); bad != nil {
		t.Error(bad)
	}
	if j.Steps[0].Backoff.D() != DefaultBackoff || !j.OnlyOnFailure("z") || j.OnlyOnFailure("a") {
		t.Errorf("%+v", j.Steps)
	}
}
