package jobs

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// frugal runs a fuzz target. In a long run it fails where one input takes a second
// of work, or 64 MiB.
func frugal(t *testing.T, target func()) {
	t.Helper()
	if !full() {
		target()
		return
	}
	spent := func() (time.Duration, uint64) {
		var usage syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
		bytes := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(bytes)
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), bytes[0].Value.Uint64()
	}
	cpu, bytes := spent()
	target()
	if cpuNow, bytesNow := spent(); cpuNow-cpu > time.Second || bytesNow-bytes > 64<<20 {
		t.Errorf("took %s and %d bytes", cpuNow-cpu, bytesNow-bytes)
	}
}

func FuzzACronLineIsRefusedOrDueForEver(f *testing.F) {
	for _, seed := range []string{"* * * * *", "0 0 29 2 *", "@daily", "*/5 9-17 * * MON-FRI", "0 0 30 2 *", "1-,, / - *", "59 59 23 31 12 7", "0-59/7,3 * 1-7 */2 SUN-SAT/3"} {
		f.Add(seed)
	}
	zone, err := loadZone("America/New_York")
	if err != nil {
		f.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, line string) {
		frugal(t, func() {
			c, err := parseCron(line)
			if err != nil {
				return
			}
			p := cronPart{c, zone, dstPolicy{}}
			next, looked := p.searchNext(now)
			if next.IsZero() || !next.After(now) || looked > 14 {
				t.Errorf("%q was accepted and is next due at %s, after %d months", line, next, looked)
			}
			if last := p.last(next); !last.Equal(next) {
				t.Errorf("%q: due at %s, last due at %s", line, next, last)
			}
			if s := c.spacing(); s < time.Second || s > 24*time.Hour {
				t.Errorf("%q: %s between two ticks", line, s)
			}
		})
	})
}

func FuzzADurationIsRefusedOrReadAsItIsPrinted(f *testing.F) {
	for _, seed := range []string{"5s", "1h30m", "90d", "1.5h", "250ms", "-3s", "65535d", "1ns", "9223372036854775807ns", ".5s", "1d2h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		frugal(t, func() {
			d, err := ParseDuration(text)
			if err != nil {
				return
			}
			if again, err := ParseDuration(Duration(d).String()); d < 0 || err != nil || again != d {
				t.Errorf("%q is %s, which is printed as %s and read as %s, %v", text, d, Duration(d), again, err)
			}
		})
	})
}

func FuzzAScheduleAtAnyTime(f *testing.F) {
	names := slices.Sorted(maps.Keys(zones()))
	f.Add("30 2 * * *", uint16(9), int64(0), int64(0), int64(1_790_000_000), int64(5), uint8(0))
	f.Add("", uint16(99), int64(3600), int64(20_000), int64(-62135596800), int64(999_999_999), uint8(7))
	f.Add("0 0 29 2 *", uint16(599), int64(1<<40), int64(1), int64(253402300799), int64(0), uint8(255))
	plain := regexp.MustCompile(`^[-*/,?0-9A-Za-z@ ]*$`)
	f.Fuzz(func(t *testing.T, line string, zone uint16, every, jitter, seconds, nanos int64, flags uint8) {
		j := Job{Name: "x", Timezone: names[int(zone)%len(names)], Jitter: Duration(jitter)}
		if line != "" && plain.MatchString(line) {
			j.Cron = Strings{line}
		}
		if every != 0 {
			j.Every = Durations{time.Duration(every) * time.Second}
		}
		now := time.Unix(seconds, nanos)
		for bit, set := range map[uint8]func(){
			1: func() { j.DSTGap = GapSkip }, 2: func() { j.DSTFold = FoldBoth },
			4:  func() { j.NotBefore = Instant{now.Add(-time.Hour)} },
			8:  func() { j.NotAfter = Instant{now.Add(1000 * time.Hour)} },
			16: func() { j.Except = Dates{now.Format(time.DateOnly)} },
			32: func() { j.At = Times{now, now.Add(time.Minute)} },
		} {
			if flags&bit != 0 {
				set()
			}
		}
		frugal(t, func() { askAround(t, j, now) })
	})
}

// askAround checks that Next and Last fit together around an instant.
func askAround(t *testing.T, j Job, now time.Time) {
	s, bad := j.buildSchedule()
	if len(bad) > 0 || s.Never() {
		return
	}
	next, last := s.Next(now), s.Last(now)
	if !next.IsZero() {
		if !next.After(now) {
			t.Errorf("%s: Next(%s) is %s", s, now, next)
		}
		if back := s.Last(next); !back.Equal(next) {
			t.Errorf("%s: Next(%s) is %s, and Last of that %s", s, now, next, back)
		}
		if back := s.Last(next.Add(-1)); !back.Equal(last) && now.After(firstYear) && !last.IsZero() {
			t.Errorf("%s: before %s it was due at %s, after %s at %s", s, now, last, now, back)
		}
	}
	if !last.IsZero() && (last.After(now) || now.Before(lastYear) && !s.Next(last.Add(-1)).Equal(last)) {
		t.Errorf("%s: Last(%s) is %s, and Next before that %s", s, now, last, s.Next(last.Add(-1)))
	}
}

func FuzzAParameterIsRefusedOrKeepsItsValue(f *testing.F) {
	types := ParamType("").Values()
	for i, seed := range []string{"a\"b", "-42", "1e5", "true", "2026-12-01T12:00:00.5+01:00", "large", "{{sku}}"} {
		f.Add(uint8(i), seed)
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		frugal(t, func() {
			p := Param{Type: ParamType(types[int(kind)%len(types)]), Values: []string{"small", "large"}}
			v, err := p.Read(text)
			if err != nil {
				return
			}
			if again, err := p.Read(inText(v)); err != nil || again != v {
				t.Errorf("%q is %v, which is read as %v, %v", text, v, again, err)
			}
			checkPlaces(t, inText(v))
		})
	})
}

func FuzzATemplateTakesAnyValue(f *testing.F) {
	f.Add(`{"a": {{sku}}, "b": "{{sku}}"}`, "application/json", "x\"y")
	f.Add(`a={{sku}}`, "application/x-www-form-urlencoded", "&")
	f.Add(`{{{{ {{sku}} \{{sku}}`, "text/plain", "{{sku}}")
	f.Fuzz(func(t *testing.T, text, contentType, value string) {
		frugal(t, func() {
			if checkBody(text, contentType, []string{"sku"}) != nil {
				return
			}
			run := Run{Params: Params{"sku": value}}
			body := run.Body(text, contentType)
			run.Header(text)
			if isJSON(text, "") && !json.Valid([]byte(body)) {
				t.Errorf("%q with %q is no JSON: %q", text, value, body)
			}
			if plain := (Run{Params: Params{"sku": "x"}}); isJSON(text, "") && shape(plain.Body(text, contentType)) != shape(body) {
				t.Errorf("%q with %q is of another shape: %q", text, value, body)
			}
		})
	})
}

// shape is JSON without its values.
func shape(text string) (kinds string) {
	d := json.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if err != nil {
			return kinds
		}
		kinds += fmt.Sprintf("%T ", token)
	}
}
