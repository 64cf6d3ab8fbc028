package jobs

import (
	"archive/zip"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJitterMovesEachTickAlikeOnEveryReplicaAndSpreadsThemEvenly(t *testing.T) {
	const jitter = 20 * time.Second
	due := at(t, "2026-11-21T08:00:00Z")
	moved := func(name string) time.Duration {
		s := scheduleOf(t, Job{Name: name, Every: Durations{time.Minute}, Jitter: Duration(jitter)})
		return s.Next(due.Add(-1)).Sub(due)
	}
	// Replicas of another version and of another machine must agree with these.
	for name, want := range map[string]time.Duration{"restock": 19654 * time.Millisecond, "report": 18431 * time.Millisecond} {
		if got := moved(name); got != want {
			t.Errorf("%s is moved by %s, where it was always moved by %s", name, got, want)
		}
	}
	spread := func(what string, by func(i int) time.Duration) {
		const n, slots = 20_000, 20
		var count [slots]int
		for i := range n {
			d := by(i)
			if d < 0 || d >= jitter {
				t.Fatalf("%s: moved by %s", what, d)
			}
			count[d*slots/jitter]++
		}
		squares := 0.0
		for _, c := range count {
			squares += float64((c-n/slots)*(c-n/slots)) / (n / slots)
		}
		if squares > 45 { // of 19 degrees of freedom: one in a thousand is beyond 43.8
			t.Errorf("%s are not spread evenly: %v", what, count)
		}
	}
	spread("jobs", func(i int) time.Duration {
		return moved("job" + string(rune('a'+i%26)) + strings.Repeat("x", i/26%9) + time.Duration(i).String())
	})
	s := scheduleOf(t, Job{Name: "restock", Every: Durations{time.Minute}, Jitter: Duration(jitter)})
	spread("ticks", func(i int) time.Duration {
		base := due.Add(time.Duration(i) * time.Minute)
		return s.Next(base.Add(-1)).Sub(base)
	})
}

// TestNoTickIsLostOrDoubledByJitter moves all the instants of a stretch by itself.
func TestNoTickIsLostOrDoubledByJitter(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 60 {
		zone := []string{"UTC", "America/New_York", "Europe/Berlin"}[r.IntN(3)]
		j := Job{Name: "x", Cron: Strings{randomLine(r, false, false, false).text, randomLine(r, false, false, false).text}, Timezone: zone}
		still := scheduleOf(t, j)
		j.Jitter = Duration(time.Duration(1+r.IntN(59_999)) * time.Millisecond)
		s, bad := j.buildSchedule()
		if len(bad) > 0 {
			t.Fatal(bad)
		}
		from := time.Date(2026, time.March, 1, r.IntN(300*24), 0, 0, 0, time.UTC)
		to := from.Add(20 * 24 * time.Hour)
		var want []time.Time
		for b := still.Next(from.Add(-j.Jitter.D())); b.Before(to) && !b.IsZero() && len(want) < 1000; b = still.Next(b) {
			if m := jittered(nil, j.Jitter.D(), j.Name).moved(b); m.After(from) {
				want = append(want, m)
			}
		}
		slices.SortFunc(want, time.Time.Compare)
		now := from
		for i, w := range want {
			if got := s.Next(now); !got.Equal(w) {
				t.Fatalf("%+v: tick %d is %s, want %s", j, i, got, w)
			}
			if got := s.Last(w); !got.Equal(w) {
				t.Fatalf("%+v: Last(%s) is %s", j, w, got)
			}
			if i > 0 {
				if got := s.Last(w.Add(-1)); !got.Equal(want[i-1]) {
					t.Fatalf("%+v: Last before %s is %s, want %s", j, w, got, want[i-1])
				}
			}
			now = w
		}
	}
}

func TestWhatIsLeftOutIsNotDue(t *testing.T) {
	berlin := func(j Job) Job { j.Timezone = "Europe/Berlin"; return j }
	for _, c := range []struct {
		name string
		job  Job
		from string
		want []string
	}{
		{"days off are those of the job's zone", berlin(Job{Cron: Strings{"30 0,12 * * *"}, Except: Dates{"2026-12-25", "2026-12-26"}}), "2026-12-24T00:00:00Z",
			[]string{"2026-12-24T11:30:00Z", "2026-12-26T23:30:00Z"}},
		{"and of every kind of schedule", Job{Every: Durations{12 * time.Hour}, At: Times{at(t, "2026-12-25T01:00:00Z"), at(t, "2026-12-26T01:00:00Z")}, Except: Dates{"2026-12-25"}}, "2026-12-24T11:00:00Z",
			[]string{"2026-12-24T12:00:00Z", "2026-12-26T00:00:00Z", "2026-12-26T01:00:00Z"}},
		{"a day off on which the clock changes", berlin(Job{Cron: Strings{"0 * * * *"}, Except: Dates{"2026-10-25"}}), "2026-10-24T20:30:00Z",
			[]string{"2026-10-24T21:00:00Z", "2026-10-25T23:00:00Z"}},
		{"not before, not after, both included", Job{Cron: Strings{"@daily"}, NotBefore: Instant{at(t, "2027-01-01T01:00:00+01:00")}, NotAfter: Instant{at(t, "2027-01-02T00:00:00Z")}}, "2026-01-01T00:00:00Z",
			[]string{"2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z", ""}},
	} {
		s := scheduleOf(t, c.job)
		now := at(t, c.from)
		for i, want := range c.want {
			next := s.Next(now)
			if want == "" && !next.IsZero() || want != "" && !next.Equal(at(t, want)) {
				t.Errorf("%s: tick %d is %s, want %s", c.name, i, next, want)
			}
			if i > 0 && !next.IsZero() && !s.Last(next.Add(-1)).Equal(now) {
				t.Errorf("%s: the tick before %s is %s, want %s", c.name, next, s.Last(next.Add(-1)), now)
			}
			now = next
		}
	}
}

func TestASearchIsShortHoweverRareTheTick(t *testing.T) {
	for _, spec := range []string{"* * * * * *", "0 0 29 2 *", "59 59 23 31 12 *", "0 0 31 * *", "30 2 * * SUN", "0 0 1 1 *"} {
		for _, zone := range []string{"UTC", "America/New_York", "Africa/Casablanca", "Pacific/Apia"} {
			j := Job{Cron: Strings{spec}, Timezone: zone}
			s := scheduleOf(t, j)
			p := s.part.(anyPart)[0].(cronPart)
			for now := at(t, "2020-01-01T00:00:00Z"); now.Year() < 2041; now = now.Add(997 * time.Hour) {
				for name, search := range map[string]func(time.Time) (time.Time, int){"next": p.searchNext, "last": p.searchLast} {
					if due, looked := search(now); due.IsZero() || looked > 14 {
						t.Fatalf("%s in %s, %s of %s: %s, after %d months", spec, zone, name, now, due, looked)
					}
				}
			}
		}
	}
}

// A countingPart says how often it was asked.
type countingPart struct {
	part
	asked *int
}

func (c countingPart) next(t time.Time) time.Time { *c.asked++; return c.part.next(t) }
func (c countingPart) last(t time.Time) time.Time { *c.asked++; return c.part.last(t) }

func TestWhatIsLeftOutOrMovedCostsFewSearchesMore(t *testing.T) {
	asked := 0
	zone, err := loadZone("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	w := windowPart{part: countingPart{everyPart(time.Second), &asked}, zone: zone, off: map[date]bool{}}
	for d := range 30 { // all of a November, in which the clock changes
		w.off[date{2026, time.November, d + 1}] = true
	}
	next, last := w.next(at(t, "2026-11-01T05:30:00Z")), w.last(at(t, "2026-11-30T20:00:00Z"))
	if !next.Equal(at(t, "2026-12-01T05:00:00Z")) || !last.Equal(at(t, "2026-11-01T03:59:59Z")) || asked > 70 {
		t.Errorf("%s and %s after %d searches", next, last, asked)
	}
	asked = 0
	j := jittered(countingPart{everyPart(time.Minute), &asked}, time.Minute, "x")
	for i := range 100 {
		j.next(time.Unix(int64(i)*7, 0))
		j.last(time.Unix(int64(i)*7, 0))
	}
	if asked > 800 {
		t.Errorf("%d searches for 200", asked)
	}
}

// The machine's own time zones may be older than those of another replica.
func TestTheTimeZonesOfTheMachineDoNotMatter(t *testing.T) {
	if os.Getenv("ZONEINFO") == "" {
		file, err := zip.NewReader(strings.NewReader(zoneFile), int64(len(zoneFile)))
		if err != nil {
			t.Fatal(err)
		}
		another, err := fs.ReadFile(file, "Asia/Tokyo")
		if err != nil {
			t.Fatal(err)
		}
		lying := t.TempDir()
		if err := os.Mkdir(filepath.Join(lying, "Europe"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lying, "Europe/Berlin"), another, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "ZONEINFO="+lying)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	} else if local, err := time.LoadLocation("Europe/Berlin"); err != nil || time.Unix(0, 0).In(local).Hour() != 9 {
		t.Fatalf("this machine does not lie: %v, %v", local, err)
	}
	s := scheduleOf(t, Job{Cron: Strings{"30 2 * * *"}, Timezone: "Europe/Berlin"})
	if got := s.Next(at(t, "2026-11-21T08:00:00Z")); !got.Equal(at(t, "2026-11-22T01:30:00Z")) {
		t.Errorf("with ZONEINFO=%q, 02:30 in Berlin is %s", os.Getenv("ZONEINFO"), got)
	}
}
