package jobs

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func scheduleOf(t *testing.T, j Job) Schedule {
	t.Helper()
	s, bad := j.buildSchedule()
	if len(bad) > 0 {
		t.Fatalf("%+v: %v", j, bad)
	}
	return s
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNextIsTheDueTimeThatAPersonWouldName(t *testing.T) {
	for _, c := range []struct{ cron, zone, after, want string }{
		{"* * * * * *", "", "2026-11-21T08:00:00Z", "2026-11-21T08:00:01Z"},
		{"*/5 9-17 * * MON-FRI", "", "2026-11-20T17:55:00Z", "2026-11-23T09:00:00Z"},
		{"0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 13 * FRI", "", "2026-11-21T00:00:00Z", "2026-11-27T00:00:00Z"}, // either day matches
		{"0 12 * * 7", "", "2026-11-21T08:00:00Z", "2026-11-22T12:00:00Z"},
		{"@monthly", "", "2026-11-21T08:00:00Z", "2026-12-01T00:00:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-11-21T08:00:00Z", "2026-11-22T01:30:00Z"},
		{"43 23 * * *", "America/Ciudad_Juarez", "2022-11-28T12:00:00Z", "2022-11-29T05:43:00Z"}, // two days before its rule began
		{"15,45 8-10/2 1 JAN,JUL ?", "", "2026-01-01T08:15:00Z", "2026-01-01T08:45:00Z"},
	} {
		s := scheduleOf(t, Job{Cron: Strings{c.cron}, Timezone: c.zone})
		if got := s.Next(at(t, c.after)); !got.Equal(at(t, c.want)) {
			t.Errorf("%s in %q after %s: %s, want %s", c.cron, c.zone, c.after, got.Format(time.RFC3339), c.want)
		}
	}
}

func TestAClockChangeNeitherLosesNorDoublesATick(t *testing.T) {
	const zone = "America/New_York" // 2026: 02:00 becomes 03:00 on 8 March, and 01:00 again on 1 November
	for _, c := range []struct {
		name, cron string
		gap        Gap
		fold       Fold
		from, to   string
		want       []string
	}{
		{"a time that does not exist runs when the gap ends", "30 2 * * *", "", "", "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z", []string{"2026-03-08T07:00:00Z"}},
		{"or not at all", "30 2 * * *", "skip", "", "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z", nil},
		{"a time that comes twice runs the first time", "30 1 * * *", "", "", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", []string{"2026-11-01T05:30:00Z"}},
		{"or both times", "30 1 * * *", "", "both", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"}},
		{"every hour is every real hour", "0 * * * *", "", "", "2026-11-01T04:59:00Z", "2026-11-01T07:01:00Z", []string{"2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"}},
		{"in spring too", "0 * * * *", "", "", "2026-03-08T05:59:00Z", "2026-03-08T08:01:00Z", []string{"2026-03-08T06:00:00Z", "2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z"}},
	} {
		s := scheduleOf(t, Job{Cron: Strings{c.cron}, Timezone: zone, DSTGap: c.gap, DSTFold: c.fold})
		var got []string
		for d := s.Next(at(t, c.from)); d.Before(at(t, c.to)); d = s.Next(d) {
			got = append(got, d.Format(time.RFC3339))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// The time package ends a span of time too early on the last day of leap years;
// the search once stood still there.
func TestEveryDayOfThirtyYearsHasItsTick(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "Pacific/Apia", "UTC"} {
		s := scheduleOf(t, Job{Cron: Strings{"30 12 * * *"}, Timezone: zone})
		from, to := at(t, "2026-01-01T00:00:00Z"), at(t, "2056-01-01T00:00:00Z")
		days := 0
		for d := s.Next(from); d.Before(to); d = s.Next(d) {
			if back := s.Last(d.Add(time.Hour)); !back.Equal(d) {
				t.Fatalf("%s: Last finds %s, want %s", zone, back, d)
			}
			days++
		}
		if want := int(to.Sub(from).Hours() / 24); days < want-1 || days > want+1 {
			t.Errorf("%s: %d ticks in %d days", zone, days, want)
		}
	}
}

func TestReplicasAgreeOnEveryTickWheneverTheyStarted(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	s := scheduleOf(t, Job{
		Cron: Strings{"*/7 * * * *", "30 1 * * *"}, Every: Durations{90 * time.Second}, Timezone: "America/New_York",
		Jitter: Duration(30 * time.Second), Except: Dates{"2026-10-31"},
	})
	end := at(t, "2026-11-01T12:00:00Z")
	for range 50 {
		start := end.Add(-time.Duration(r.Int64N(int64(24 * time.Hour))))
		seen := map[time.Time]bool{}
		for d := s.Next(start); d.Before(end); d = s.Next(d) {
			seen[d] = true
		}
		for d := s.Last(end.Add(-time.Nanosecond)); d.After(start); d = s.Last(d.Add(-time.Nanosecond)) {
			if !seen[d] {
				t.Fatalf("a replica started at %s does not know %s", start, d)
			}
			delete(seen, d)
		}
		if len(seen) > 0 {
			t.Fatalf("a replica started at %s knows %d ticks that nobody else does", start, len(seen))
		}
	}
}

func TestAnImpossibleOrMistakenScheduleIsRefused(t *testing.T) {
	for _, c := range []struct {
		job  Job
		says string
	}{
		{Job{Cron: Strings{"0 0 30 2 *"}}, "never comes"},
		{Job{Cron: Strings{"0 0 31 4,6,9,11 *"}}, "never comes"},
		{Job{Cron: Strings{"61 * * * *"}}, `minute "61": want 0 to 59`},
		{Job{Cron: Strings{"* * *"}}, "has 3 fields"},
		{Job{Cron: Strings{"@fortnightly"}}, "@weekly"},
		{Job{Cron: Strings{"*/0 * * * *"}}, "a step is"},
		{Job{Cron: Strings{"10-5 * * * *"}}, "runs backwards"},
		{Job{Cron: Strings{"0 0 * * FUNDAY"}}, "day of week"},
		{Job{Cron: Strings{"* * * * *"}, Timezone: "Mars/Olympus"}, "not known"},
		{Job{Cron: Strings{"* * * * *"}, Timezone: "Local"}, "differs between replicas"},
		{Job{Cron: Strings{"* * * * *"}, DSTGap: "maybe"}, `want after or skip`},
		{Job{Cron: Strings{"* * * * *"}, DSTFold: "fist"}, `did you mean "first"?`},
		{Job{Cron: Strings{"* * * * *"}, Timezone: "Europe/Belrin"}, `did you mean "Europe/Berlin"?`},
		{Job{Cron: Strings{"CRON_TZ=Europe/Berlin 0 5 * * *"}}, "timezone ="},
		{Job{Cron: Strings{"+5 * * * *"}}, `minute "+5"`},
		{Job{Every: Durations{time.Minute}, Jitter: Duration(2 * time.Minute)}, "longer than the 1m between two ticks"},
		{Job{Cron: Strings{"0,30 8 * * *", "@daily"}, Jitter: Duration(time.Hour)}, "longer than the 30m between two ticks"},
		{Job{At: Times{firstYear.AddDate(99, 0, 0), firstYear.AddDate(99, 0, 1)}, Jitter: Duration(48 * time.Hour)}, "longer than the 24h between two ticks"},
		{Job{Every: Durations{time.Minute}, Jitter: 1}, "a millisecond at least"},
		{Job{Every: Durations{time.Minute}, Jitter: -1}, "a millisecond at least"},
		{Job{Jitter: Duration(time.Second)}, "has none: add cron"},
		{Job{Except: Dates{"2026-12-25"}}, "has none: add cron"},
		{Job{Every: Durations{time.Minute}, Except: Dates{"2026-02-30"}}, `want a date like "2026-12-25"`},
		{Job{Every: Durations{time.Minute}, NotBefore: Instant{lastYear}, NotAfter: Instant{firstYear}}, "not_after is before not_before"},
		{Job{At: Times{firstYear.AddDate(99, 0, 0)}, NotBefore: Instant{firstYear.AddDate(99, 0, 1)}}, "is never due"},
		{Job{At: Times{firstYear.AddDate(99, 0, 0)}, Except: Dates{"1999-01-01"}}, "is never due"},
		{Job{Every: Durations{time.Millisecond}}, "whole seconds"},
		{Job{Every: Durations{-time.Second}}, "whole seconds"},
	} {
		_, bad := c.job.buildSchedule()
		if len(bad) != 1 || !strings.Contains(bad[0].Message, c.says) {
			t.Errorf("%+v: %v, want %q", c.job, bad, c.says)
		}
	}
}

func TestWhatNeverComesIsRefusedAndNothingElseIs(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	never := 0
	for range 20_000 {
		l := randomLine(r, false, false, false)
		_, err := parseCron(l.text)
		if (err == nil) != l.comes() {
			t.Errorf("%s: %v", l.text, err)
		}
		if err != nil {
			never++
		}
	}
	if never == 0 {
		t.Error("every line comes")
	}
}

func TestAListOfInstantsIsDueAtEachOnceAndThenNever(t *testing.T) {
	a, b := at(t, "2026-12-01T09:00:00Z"), at(t, "2026-12-24T18:00:00+01:00")
	s := scheduleOf(t, Job{At: Times{b, a}})
	if got := s.Next(a.Add(-time.Hour)); !got.Equal(a) {
		t.Errorf("first: %s", got)
	}
	if got := s.Next(a); !got.Equal(b) {
		t.Errorf("second: %s", got)
	}
	if got := s.Next(b); !got.IsZero() {
		t.Errorf("after the last: %s", got)
	}
	if got := s.Last(a.Add(-time.Second)); !got.IsZero() {
		t.Errorf("before the first: %s", got)
	}
}

func BenchmarkNext(b *testing.B) {
	for _, j := range []Job{
		{Cron: Strings{"*/5 9-17 * * MON-FRI"}, Timezone: "Europe/Berlin"},
		{Cron: Strings{"* * * * * *"}},
		{Cron: Strings{"0 0 29 2 *"}, Timezone: "America/New_York"},
		{Cron: Strings{"30 2 * * *"}, Timezone: "America/New_York", Jitter: Duration(time.Hour), Except: Dates{"2026-12-25"}},
		{Every: Durations{30 * time.Second}},
	} {
		s, _ := j.buildSchedule()
		b.Run(s.String(), func(b *testing.B) {
			from, to := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
			for now := from; b.Loop(); {
				if now = s.Next(now); now.After(to) {
					now = from
				}
			}
		})
	}
}
