package jobs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"time"
)

// The oracle looks at every minute that there is, on the clock of the zone, and
// knows nothing of how Next works: no spans, no sets of bits, no search.

// A minute is what the clock on the wall shows for one minute.
type minute struct {
	at                           int64 // the real time, in seconds
	minute, hour, day, month, wd int
	again                        bool // it has shown this before: the clock was set back
	missing                      []time.Time
}

// scan looks at the clock for a stretch of time.
func scan(zone *time.Location, from time.Time, minutes int) []minute {
	const before = 26 * 60 // longer than any change of the clock
	all := make([]minute, 0, minutes)
	var shown, latest time.Time
	for i := -before; i < minutes; i++ {
		t := from.Add(time.Duration(i) * time.Minute)
		_, offset := t.In(zone).Zone()
		wall := t.UTC().Add(time.Duration(offset) * time.Second)
		_, month, day := wall.Date()
		m := minute{at: t.Unix(), minute: wall.Minute(), hour: wall.Hour(), day: day, month: int(month), wd: int(wall.Weekday())}
		if i > -before {
			m.again = !wall.After(latest)
			for w := shown.Add(time.Minute); w.Before(wall); w = w.Add(time.Minute) {
				m.missing = append(m.missing, w)
			}
		}
		if shown = wall; wall.After(latest) {
			latest = wall
		}
		if i >= 0 {
			all = append(all, m)
		}
	}
	return all
}

// A line is a cron line as the oracle understands it.
type line struct {
	text                      string
	second, minute, hour      [61]bool
	day, month, wd            [32]bool
	anyDay, anyWeekday, named bool
	seconds                   []int64
	skipGap, bothFold         bool
}

func (l *line) matches(minute, hour, day, month, wd int) bool {
	if !l.minute[minute] || !l.hour[hour] || !l.month[month] {
		return false
	}
	switch {
	case l.anyDay && l.anyWeekday:
		return true
	case l.anyDay:
		return l.wd[wd]
	case l.anyWeekday:
		return l.day[day]
	}
	return l.day[day] || l.wd[wd]
}

// comes reports whether there is a day at all on which the line is due.
func (l *line) comes() bool {
	for day := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2032; day = day.AddDate(0, 0, 1) {
		if l.matches(60, 60, day.Day(), int(day.Month()), int(day.Weekday())) {
			return true
		}
	}
	return false
}

// dues returns the instants of a stretch at which the line is due.
func (l *line) dues(stretch []minute) (due []int64) {
	for i := range stretch {
		m := &stretch[i]
		made := false
		if l.named && !l.skipGap {
			for _, w := range m.missing {
				made = made || l.matches(w.Minute(), w.Hour(), w.Day(), int(w.Month()), int(w.Weekday()))
			}
		}
		if made && !(l.seconds[0] == 0 && l.matches(m.minute, m.hour, m.day, m.month, m.wd)) {
			due = append(due, m.at)
		}
		if l.matches(m.minute, m.hour, m.day, m.month, m.wd) && !(l.named && !l.bothFold && m.again) {
			for _, s := range l.seconds {
				due = append(due, m.at+s)
			}
		}
	}
	return due
}

// randomField returns the text of a field, and sets what it stands for.
func randomField(r *rand.Rand, set []bool, low, high int, names string) string {
	name := func(v int) string {
		if names != "" && r.IntN(3) == 0 {
			if i := 3 * (v - low); i+3 <= len(names) {
				return names[i : i+3]
			}
		}
		return fmt.Sprint(v)
	}
	add := func(from, to, step int) {
		for v := from; v <= to; v += step {
			set[v] = true
		}
	}
	var items []string
	for range 1 + r.IntN(3)*r.IntN(2) {
		a := low + r.IntN(high-low+1)
		b := a + r.IntN(high-a+1)
		step := 1 + r.IntN(high-low)
		switch r.IntN(5) {
		case 0:
			add(low, high, step)
			items = append(items, fmt.Sprintf("*/%d", step))
		case 1:
			add(a, b, 1)
			items = append(items, name(a)+"-"+name(b))
		case 2:
			add(a, b, step)
			items = append(items, fmt.Sprintf("%s-%s/%d", name(a), name(b), step))
		case 3:
			add(a, high, step)
			items = append(items, fmt.Sprintf("%s/%d", name(a), step))
		default:
			add(a, a, 1)
			items = append(items, name(a))
		}
	}
	return strings.Join(items, ",")
}

// randomLine makes a cron line, with seconds or without.
func randomLine(r *rand.Rand, skipGap, bothFold, seconds bool) *line {
	l := &line{skipGap: skipGap, bothFold: bothFold}
	field := func(stars int, set []bool, low, high int, names string) string {
		if r.IntN(10) < stars {
			for v := low; v <= high; v++ {
				set[v] = true
			}
			return "*"
		}
		return randomField(r, set, low, high, names)
	}
	words := []string{
		field(1, l.minute[:], 0, 59, ""),
		field(3, l.hour[:], 0, 23, ""),
		field(6, l.day[:], 1, 31, ""),
		field(7, l.month[:], 1, 12, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"),
		field(6, l.wd[:], 0, 6, "SUNMONTUEWEDTHUFRISAT"),
	}
	l.anyDay, l.anyWeekday = words[2] == "*", words[4] == "*"
	l.second[0] = true
	if seconds {
		l.second[0] = false
		words = append([]string{field(0, l.second[:], 0, 59, "")}, words...)
	}
	for s, ok := range l.second[:60] {
		if ok {
			l.seconds = append(l.seconds, int64(s))
		}
	}
	for h := range 24 {
		l.named = l.named || !l.hour[h]
	}
	l.minute[60], l.hour[60] = true, true // for comes alone
	l.text = strings.Join(words, " ")
	return l
}

// A riddle is a job, and when the oracle says that it is due.
type riddle struct {
	job   Job
	lines []*line
}

func randomRiddle(r *rand.Rand, zone string, year int) riddle {
	q := riddle{job: Job{Name: fmt.Sprintf("job%d", r.IntN(100)), Timezone: zone}}
	skipGap, bothFold := r.IntN(2) == 0, r.IntN(2) == 0
	if skipGap {
		q.job.DSTGap = GapSkip
	}
	if bothFold {
		q.job.DSTFold = FoldBoth
	}
	for range 1 + r.IntN(3)*r.IntN(2) {
		l := randomLine(r, skipGap, bothFold, r.IntN(8) == 0)
		for !l.comes() {
			l = randomLine(r, skipGap, bothFold, false)
		}
		q.lines, q.job.Cron = append(q.lines, l), append(q.job.Cron, l.text)
	}
	start := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
	moment := func() time.Time { return start.Add(time.Duration(r.Int64N(365*24*3600)) * time.Second) }
	if r.IntN(4) == 0 {
		q.job.Every = Durations{time.Duration(600+r.IntN(100_000)) * time.Second}
	}
	if r.IntN(4) == 0 {
		q.job.At = Times{moment(), moment()}
	}
	if r.IntN(4) == 0 {
		a, b := moment(), moment()
		if b.Before(a) {
			a, b = b, a
		}
		q.job.NotBefore, q.job.NotAfter = Instant{a}, Instant{b}
	}
	for range r.IntN(4) * r.IntN(2) * 5 {
		q.job.Except = append(q.job.Except, moment().Format(time.DateOnly))
	}
	return q
}

// dues answers the riddle for a stretch.
func (q riddle) dues(stretch []minute, zone *time.Location) []int64 {
	from, until := stretch[0].at, stretch[len(stretch)-1].at+60
	var due []int64
	for _, l := range q.lines {
		due = append(due, l.dues(stretch)...)
	}
	for _, e := range q.job.Every {
		period := int64(e / time.Second)
		for n := from / period; n*period < until; n++ {
			due = append(due, n*period)
		}
	}
	for _, t := range q.job.At {
		due = append(due, t.Unix())
	}
	slices.Sort(due)
	return slices.DeleteFunc(slices.Compact(due), func(t int64) bool {
		at := time.Unix(t, 0)
		return t < from || t >= until ||
			!q.job.NotBefore.IsZero() && at.Before(q.job.NotBefore.Time) ||
			!q.job.NotAfter.IsZero() && at.After(q.job.NotAfter.Time) ||
			len(q.job.Except) > 0 && slices.Contains(q.job.Except, at.In(zone).Format(time.DateOnly))
	})
}

// changes returns the instants at which a zone changes its clock, found hour by
// hour.
func changes(zone *time.Location, from, to int) (at []time.Time) {
	t := time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC)
	_, offset := t.In(zone).Zone()
	for ; t.Year() <= to; t = t.Add(time.Hour) {
		if _, now := t.In(zone).Zone(); now != offset {
			offset, at = now, append(at, t)
		}
	}
	return at
}

// before returns how many dues are not later than t.
func before(due []int64, t int64) int {
	return sort.Search(len(due), func(i int) bool { return due[i] > t })
}
