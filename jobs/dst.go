package jobs

import (
	"fmt"
	"time"
)

// cronHorizon is how many years ahead or back a cron line is searched.
const cronHorizon = 12

const allHours = 1<<24 - 1

// A dstPolicy says what becomes of wall-clock times that a change of the clock
// leaves out, or has twice. It is asked only where a cron line names its hours; a
// line with * for the hour means every real hour, and has each of them once.
type dstPolicy struct {
	skipGap  bool // a time that does not exist: drop it, rather than run when the gap ends
	bothFold bool // a time that comes twice: run at both, rather than at the first
}

func (j *Job) dstPolicy() (p dstPolicy, err error) {
	switch j.DSTGap {
	case "", "after":
	case "skip":
		p.skipGap = true
	default:
		return p, fmt.Errorf("dst_gap %q: want \"after\" or \"skip\"", j.DSTGap)
	}
	switch j.DSTFold {
	case "", "first":
	case "both":
		p.bothFold = true
	default:
		return p, fmt.Errorf("dst_fold %q: want \"first\" or \"both\"", j.DSTFold)
	}
	return p, nil
}

// A cronPart is a cron line in a time zone. Time is cut into spans of constant
// offset from UTC; within one, the wall clock is plain arithmetic.
type cronPart struct {
	cron
	zone *time.Location
	dst  dstPolicy
}

// A span is a stretch of time in which a zone's offset does not change.
type span struct {
	start, end time.Time     // zero: unbounded
	offset     time.Duration // from UTC
	shift      time.Duration // offset less that of the span before: > 0 opened a gap, < 0 a fold
}

func spanAt(t time.Time, zone *time.Location) span {
	local := t.In(zone)
	start, end := local.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// On 31 December of a leap year, where a zone's rule goes beyond its table,
		// ZoneBounds ends the span a day too early.
		end = t.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	}
	_, sec := local.Zone()
	s := span{start, end, time.Duration(sec) * time.Second, 0}
	if !start.IsZero() {
		_, before := start.Add(-time.Second).Zone()
		s.shift = s.offset - time.Duration(before)*time.Second
	}
	return s
}

// wall is what the clock on the wall shows, with UTC standing for no zone at all.
func (s span) wall(t time.Time) time.Time { return t.UTC().Add(s.offset) }
func (s span) real(w time.Time) time.Time { return w.Add(-s.offset) }

// gapDue reports whether the gap that opened this span swallowed a due time that
// is made up for when the gap ends.
func (p cronPart) gapDue(s span) bool {
	if s.shift <= 0 || p.dst.skipGap || p.hour == allHours {
		return false
	}
	end := s.wall(s.start)
	return !p.cron.next(end.Add(-s.shift), end.Add(-time.Second)).IsZero()
}

// first is the earliest instant of the span at which the line may be due: behind
// the part that comes a second time, where the first one counts.
func (p cronPart) first(s span) time.Time {
	if s.shift < 0 && !p.dst.bothFold && p.hour != allHours {
		return s.start.Add(-s.shift)
	}
	return s.start
}

func (p cronPart) next(after time.Time) time.Time {
	t := after.Truncate(time.Second).Add(time.Second)
	horizon := t.AddDate(cronHorizon, 0, 0)
	for !t.After(horizon) {
		s := spanAt(t, p.zone)
		if t.Equal(s.start) && p.gapDue(s) {
			return t
		}
		if first := p.first(s); t.Before(first) {
			t = first
		}
		last := horizon
		if !s.end.IsZero() && s.end.Before(horizon) {
			last = s.end.Add(-time.Second)
		}
		if w := p.cron.next(s.wall(t), s.wall(last)); !w.IsZero() {
			return s.real(w)
		}
		t = last.Add(time.Second)
	}
	return time.Time{}
}

func (p cronPart) last(at time.Time) time.Time {
	t := at.Truncate(time.Second)
	horizon := t.AddDate(-cronHorizon, 0, 0)
	for !t.Before(horizon) {
		s := spanAt(t, p.zone)
		first := horizon
		if !s.start.IsZero() && s.start.After(horizon) {
			first = p.first(s)
		}
		if w := p.cron.last(s.wall(t), s.wall(first)); !w.IsZero() {
			return s.real(w)
		}
		if !s.start.IsZero() && p.gapDue(s) {
			return s.start
		}
		if s.start.IsZero() {
			break
		}
		t = s.start.Add(-time.Second)
	}
	return time.Time{}
}
