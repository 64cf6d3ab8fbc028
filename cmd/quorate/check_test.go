package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// clocks has jobs whose times are touched by changes of the clock.
const clocks = head + `
[targets.unused]
url = "sqlite:x.db"
[jobs.after]
cron = ["30 2 * * *", "0 12 * * *"]
timezone = "Europe/Berlin"
[[jobs.after.steps]]
command = ["true"]
[jobs.both]
cron = "*/20 1-2 * * *"
timezone = "America/New_York"
dst_gap = "skip"
dst_fold = "both"
[[jobs.both.steps]]
command = ["true"]
[jobs.each-hour]
cron = "30 * * * *"
timezone = "Europe/Berlin"
[[jobs.each-hour.steps]]
command = ["true"]
[jobs.moved]
every = "1m"
jitter = "10s"
ttl = "2m"
[[jobs.moved.steps]]
command = ["true"]
[jobs.over]
at = 2020-01-01T00:00:00Z
timezone = "Asia/Tokyo"
dst_gap = "skip"
[[jobs.over.steps]]
command = ["true"]
[jobs.holidays]
cron = "30 2 * * *"
timezone = "Europe/Berlin"
except = ["2027-03-28", 2027-10-31]
[[jobs.holidays.steps]]
command = ["true"]
`

func reportOn(t *testing.T, text string, next int) *report {
	t.Helper()
	return newReport("quorate.toml", world{noWorld.env, here(t, "quorate.toml", text)}, time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), next)
}

func TestCheckSaysWhenJobsAreDueAndWhereTheClockChanges(t *testing.T) {
	r := reportOn(t, clocks, 2)
	if r.err != nil {
		t.Fatal(r.err)
	}
	var out strings.Builder
	r.print(&out)
	want := `JOB        DUE                               UTC                      SCHEDULE
after      Sat 21 Nov 2026 12:00:00 CET      2026-11-21 11:00:00      cron 30 2 * * * in Europe/Berlin; cron 0 12 * * * in Europe/Berlin
           Sun 22 Nov 2026 02:30:00 CET      2026-11-22 01:30:00
both       Sun 22 Nov 2026 01:00:00 EST      2026-11-22 06:00:00      cron */20 1-2 * * * in America/New_York; gap skip fold both
           Sun 22 Nov 2026 01:20:00 EST      2026-11-22 06:20:00
each-hour  Sat 21 Nov 2026 09:30:00 CET      2026-11-21 08:30:00      cron 30 * * * * in Europe/Berlin
           Sat 21 Nov 2026 10:30:00 CET      2026-11-21 09:30:00
holidays   Sun 22 Nov 2026 02:30:00 CET      2026-11-22 01:30:00      cron 30 2 * * * in Europe/Berlin; except 2027-03-28, 2027-10-31 in Europe/Berlin
           Mon 23 Nov 2026 02:30:00 CET      2026-11-23 01:30:00
moved      Sat 21 Nov 2026 08:00:03.023 UTC  2026-11-21 08:00:03.023  every 1m; jitter 10s
           Sat 21 Nov 2026 08:01:05.723 UTC  2026-11-21 08:01:05.723
over       not any more                                               at 2020-01-01T00:00:00Z

CLOCK CHANGES    JOB
Sun 14 Mar 2027  both   02:00:00 and 2 more do not exist  skipped
Sun 28 Mar 2027  after  02:30:00 does not exist           due once, at 03:00:00 CEST
Sun 31 Oct 2027  after  02:30:00 comes twice              due the first time, at 02:30:00 CEST
Sun 7 Nov 2027   both   01:00:00 and 2 more come twice    due both times, from 01:00:00 EDT and 01:00:00 EST
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCheckWarnsOfWhatIsProbablyNotMeant(t *testing.T) {
	var said []string
	for _, w := range reportOn(t, "include = \"more/*.toml\"\n"+clocks, 0).warnings {
		said = append(said, w.String())
	}
	for _, want := range []string{
		`quorate.toml:1:1: warning: include "more/\*.toml": no file is called so`,
		`quorate.toml:9:1: warning: no step uses the target "unused"`,
		`quorate.toml:\d+:1: warning: job "moved": its ttl of 2m is longer than the 1m between two ticks`,
		`quorate.toml:\d+:1: warning: job "over": is not due any more`,
		`quorate.toml:\d+:1: warning: job "over": dst_gap is for cron lines, and there is none`,
		`quorate.toml:\d+:1: warning: job "over": timezone is for cron and except, and there is neither`,
	} {
		if !regexp.MustCompile(want).MatchString(strings.Join(said, "\n")) {
			t.Errorf("not said: %s", want)
		}
	}
	if len(said) != 6 {
		t.Errorf("%d warnings: %s", len(said), strings.Join(said, "\n"))
	}
}

func TestCheckHasAnExitCodeForEachOutcome(t *testing.T) {
	t.Chdir(t.TempDir())
	job := "[jobs.a]\nevery = \"1m\"\n[[jobs.a.steps]]\ncommand = [\"true\"]\n"
	for text, want := range map[string][2]int{ // without --strict, and with it
		head + job:                   {0, 0},
		head + job + "[targets.x]\n": {2, 2},
		head + job + "[targets.x]\nurl = \"sqlite:x\"\n": {0, 1},
		"[jobs\n": {2, 2},
	} {
		if err := os.WriteFile("config.toml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, plain := quorate(t, "check")
		_, strict := quorate(t, "check", "--strict")
		out, inJSON := quorate(t, "check", "--json")
		if plain != want[0] || strict != want[1] || inJSON != plain {
			t.Errorf("exit codes %d, %d, %d of\n%s", plain, strict, inJSON, text)
		}
		var r report
		if err := json.Unmarshal([]byte(out), &r); err != nil || (len(r.Problems) == 0) != (want[1] == 0) || len(r.Jobs) != 1-plain/2 {
			t.Errorf("%v: %s", err, out)
		}
	}
}
