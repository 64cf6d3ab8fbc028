package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestTheDefinitionOfAJobSaysEverythingButSecrets(t *testing.T) {
	rows := int64(3)
	job := func() *Job {
		return &Job{
			Name: "x", Cron: Strings{"@daily"}, Every: Durations{time.Minute, 90 * time.Minute}, At: Times{time.Unix(0, 0)},
			NotAfter: Instant{time.Unix(60, 0).UTC()}, Except: Dates{"2026-12-25"}, Jitter: Duration(time.Second),
			Steps: []Step{
				{Name: "sell", Target: "shop", SQL: Strings{"SELECT 1", "SELECT 2"}, ExpectRows: &rows},
				{Name: "tell", HTTP: &HTTP{URL: "https://u:hunter2@h/hunter2?x=hunter2", Headers: map[string]Secret{"A": "hunter2"}, Expect: []int{200, 204}}},
				{Command: []string{"a b", "c"}, Env: map[string]string{"MODE": "x"}},
			},
		}
	}
	j := job()
	if bad := j.Prepare(); len(bad) > 0 {
		t.Fatal(bad)
	}
	got := j.Definition()
	for key, want := range map[string]string{
		"cron": "@daily", "every": "1m, 1h30m", "at": "1970-01-01T00:00:00Z", "not_after": "1970-01-01T00:01:00Z", "except": `"2026-12-25"`, "jitter": "1s",
		"ttl": "10s", "overlap": "skip", "lock": "x", "timeout": "1h", "steps": "sell, tell, step3",
		"steps.sell.target": "shop", "steps.sell.sql.1": "SELECT 1", "steps.sell.sql.2": "SELECT 2", "steps.sell.expect_rows": "3",
		"steps.tell.http.url": "https://h/***", "steps.tell.http.headers.A": "***", "steps.tell.http.expect_status": "200, 204", "steps.tell.http.method": "POST",
		"steps.step3.command": `"a b", "c"`, "steps.step3.env.MODE": "x",
	} {
		if got[key] != want {
			t.Errorf("%s = %q, want %q", key, got[key], want)
		}
	}
	if all := fmt.Sprint(got); strings.Contains(all, "hunter2") || got["timezone"] != "" {
		t.Error(all)
	}

	// What is hidden counts all the same, but for secrets that replicas may differ in.
	before, _ := Revision(j)
	other := job()
	other.Steps[1].HTTP.URL += "y"
	other.Prepare()
	if after, _ := Revision(other); after == before {
		t.Error("another url is the same revision")
	}
}
