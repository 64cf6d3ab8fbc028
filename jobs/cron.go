package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A cron is a parsed cron line: for each field the set of values that match.
//
// Five fields are minute, hour, day of month, month, day of week; a sixth in
// front is the second. Where day of month and day of week are both restricted, a
// day matches if either does, as in every cron since Vixie's. Only a bare * (or
// ?) leaves a field unrestricted.
type cron struct {
	second, minute, hour, day, month, weekday uint64
	anyDay, anyWeekday                        bool
}

// A field is what may stand in one place of a cron line.
type field struct {
	name     string
	min, max int
	names    string // three letters each, the first of them for min
}

var cronFields = [6]field{
	{"second", 0, 59, ""},
	{"minute", 0, 59, ""},
	{"hour", 0, 23, ""},
	{"day of month", 1, 31, ""},
	{"month", 1, 12, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"},
	{"day of week", 0, 7, "SUNMONTUEWEDTHUFRISAT"},
}

var cronMacros = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
	"@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

func parseCron(line string) (cron, error) {
	spec := strings.TrimSpace(line)
	if strings.HasPrefix(spec, "@") {
		macro, ok := cronMacros[strings.ToLower(spec)]
		if !ok {
			return cron{}, fmt.Errorf("cron %q: want @yearly, @monthly, @weekly, @daily or @hourly; for a period use every = \"30s\"", line)
		}
		spec = macro
	}
	words := strings.Fields(spec)
	if strings.Contains(spec, "TZ=") {
		return cron{}, fmt.Errorf("cron %q: the zone is a key of its own: timezone = \"Europe/Berlin\"", line)
	}
	switch len(words) {
	case 5:
		words = append([]string{"0"}, words...)
	case 6:
	default:
		return cron{}, fmt.Errorf("cron %q has %d fields: want 5 (minute hour day month weekday), or 6 with the second in front", line, len(words))
	}
	var c cron
	for i, set := range []*uint64{&c.second, &c.minute, &c.hour, &c.day, &c.month, &c.weekday} {
		var err error
		if *set, err = cronFields[i].parse(words[i]); err != nil {
			return cron{}, fmt.Errorf("cron %q: %w", line, err)
		}
	}
	c.weekday |= c.weekday >> 7 & 1 // 7 is Sunday too
	c.anyDay = words[3] == "*" || words[3] == "?"
	c.anyWeekday = words[5] == "*" || words[5] == "?"
	// The longest wait between two matches is from one 29 February to the next
	// over a century without one: eight years.
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	if due, _ := c.next(start, start.AddDate(cronHorizon, 0, 0)); due.IsZero() {
		return cron{}, fmt.Errorf("cron %q never comes: no month has such a day", line)
	}
	return c, nil
}

// parse reads a list of ranges with steps: 1,3-5,*/10,MON-FRI.
func (f field) parse(word string) (set uint64, err error) {
	for item := range strings.SplitSeq(word, ",") {
		span, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			n, err := strconv.ParseUint(stepText, 10, 8)
			if step = int(n); err != nil || step < 1 || step > f.max {
				return 0, fmt.Errorf("%s %q: a step is a number from 1 to %d", f.name, item, f.max)
			}
		}
		low, high := f.min, f.max
		if f.max == 7 {
			high = 6 // * is Sunday to Saturday, once each
		}
		if span != "*" && span != "?" {
			from, to, ranged := strings.Cut(span, "-")
			if low, err = f.value(from); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if high, err = f.value(to); err != nil {
					return 0, err
				}
			case !stepped:
				high = low
			}
			if low > high {
				return 0, fmt.Errorf("%s %q runs backwards: write it as two ranges", f.name, span)
			}
		}
		for v := low; v <= high; v += step {
			set |= 1 << v
		}
	}
	return set, nil
}

func (f field) value(word string) (int, error) {
	if len(word) == 3 && f.names != "" {
		if i := strings.Index(f.names, strings.ToUpper(word)); i >= 0 && i%3 == 0 {
			return f.min + i/3, nil
		}
	}
	v, err := strconv.ParseUint(word, 10, 8)
	if err != nil || int(v) < f.min || int(v) > f.max {
		return 0, fmt.Errorf("%s %q: want %d to %d", f.name, word, f.min, f.max)
	}
	return int(v), nil
}
