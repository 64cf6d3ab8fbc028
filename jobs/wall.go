package jobs

import (
	"math/bits"
	"time"
)

// Here time is a calendar and a clock on the wall, with UTC standing for no zone at
// all; dst.go knows zones. A search looks at whole months, as sets of days.

// next returns the first match in [from, until], zero if there is none, and how
// many months it has looked at.
func (c cron) next(from, until time.Time) (due time.Time, looked int) {
	year, month, day := from.Date()
	clock := secondOfDay(from)
	for looked = 1; ; looked++ {
		for days := c.days(year, month) >> day << day; days != 0; days &= days - 1 {
			if d := bits.TrailingZeros64(days); d > day {
				day, clock = d, 0
			}
			if c.clockNext(&clock) {
				return within(until, time.Date(year, month, day, 0, 0, clock, 0, time.UTC)), looked
			}
		}
		day, clock = 1, 0
		year, month = c.monthAfter(year, month)
		if y, m, _ := until.Date(); year > y || year == y && month > m {
			return time.Time{}, looked
		}
	}
}

func within(until, due time.Time) time.Time {
	if due.After(until) {
		return time.Time{}
	}
	return due
}

// last is next backwards: the latest match in [since, from].
func (c cron) last(from, since time.Time) (due time.Time, looked int) {
	const endOfDay = 24*60*60 - 1
	year, month, day := from.Date()
	clock := secondOfDay(from)
	for looked = 1; ; looked++ {
		for days := c.days(year, month) & (2<<day - 1); days != 0; {
			d := bits.Len64(days) - 1
			days &^= 1 << d
			if d < day {
				day, clock = d, endOfDay
			}
			if c.clockLast(&clock) {
				if due = time.Date(year, month, day, 0, 0, clock, 0, time.UTC); due.Before(since) {
					due = time.Time{}
				}
				return due, looked
			}
		}
		day, clock = 31, endOfDay
		year, month = c.monthBefore(year, month)
		if y, m, _ := since.Date(); year < y || year == y && month < m {
			return time.Time{}, looked
		}
	}
}

// days is the set of days of a month that match.
func (c cron) days(year int, month time.Month) uint64 {
	if c.month>>month&1 == 0 {
		return 0
	}
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday()
	const week, weeks = 1<<7 - 1, 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28
	inWeek := c.weekday & week
	inWeek = (inWeek>>first | inWeek<<(7-first)) & week * weeks << 1
	days := inWeek | c.day
	if c.anyDay || c.anyWeekday {
		days = inWeek & c.day
	}
	return days & (2<<daysIn(year, month) - 1)
}

func daysIn(year int, month time.Month) int {
	switch month {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

func (c cron) monthAfter(year int, month time.Month) (int, time.Month) {
	if later := c.month >> (month + 1); later != 0 {
		return year, month + 1 + time.Month(bits.TrailingZeros64(later))
	}
	return year + 1, time.Month(bits.TrailingZeros64(c.month))
}

func (c cron) monthBefore(year int, month time.Month) (int, time.Month) {
	if earlier := c.month & (1<<month - 1); earlier != 0 {
		return year, time.Month(bits.Len64(earlier) - 1)
	}
	return year - 1, time.Month(bits.Len64(c.month) - 1)
}

func secondOfDay(t time.Time) int {
	h, m, s := t.Clock()
	return h*3600 + m*60 + s
}

// clockNext moves the second of the day forward to the next one that matches.
func (c cron) clockNext(clock *int) bool {
	h, m, s := *clock/3600, *clock/60%60, *clock%60
	for ; h < 24; h, m, s = h+1, 0, 0 {
		if c.hour>>h&1 == 0 {
			continue
		}
		for ; m < 60; m, s = m+1, 0 {
			if c.minute>>m&1 == 0 {
				continue
			}
			if rest := c.second >> s; rest != 0 {
				*clock = h*3600 + m*60 + s + bits.TrailingZeros64(rest)
				return true
			}
		}
	}
	return false
}

// clockLast moves the second of the day back to the latest one that matches.
func (c cron) clockLast(clock *int) bool {
	h, m, s := *clock/3600, *clock/60%60, *clock%60
	for ; h >= 0; h, m, s = h-1, 59, 59 {
		if c.hour>>h&1 == 0 {
			continue
		}
		for ; m >= 0; m, s = m-1, 59 {
			if c.minute>>m&1 == 0 {
				continue
			}
			if rest := c.second << (63 - s); rest != 0 {
				*clock = h*3600 + m*60 + s - bits.LeadingZeros64(rest)
				return true
			}
		}
	}
	return false
}

// spacing is the shortest time between two matches, on days like any other.
func (c cron) spacing() time.Duration {
	clock := 0
	c.clockNext(&clock) // there is a first
	first, shortest := clock, 24*60*60
	for last := clock; shortest > 1; last = clock {
		clock++
		if !c.clockNext(&clock) {
			shortest = min(shortest, first+24*60*60-last)
			break
		}
		shortest = min(shortest, clock-last)
	}
	return time.Duration(shortest) * time.Second
}
