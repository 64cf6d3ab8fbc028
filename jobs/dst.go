package jobs

import "time"

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

// A Gap says what becomes of a time that the clock leaves out.
type Gap string

const (
	GapAfter Gap = "after" // the job is due when the gap ends; the default
	GapSkip  Gap = "skip"
)

// A Fold says what becomes of a time that the clock shows twice.
type Fold string

const (
	FoldFirst Fold = "first" // the default
	FoldBoth  Fold = "both"
)

// Values are the words that they may be.
func (Gap) Values() []string  { return []string{string(GapAfter), string(GapSkip)} }
func (Fold) Values() []string { return []string{string(FoldFirst), string(FoldBoth)} }

func (j *Job) dstPolicy() dstPolicy {
	return dstPolicy{skipGap: j.DSTGap == GapSkip, bothFold: j.DSTFold == FoldBoth}
}

// A cronPart is a cron line in a time zone. Time is cut into spans of constant
// offset from UTC; within one, the wall clock is plain arithmetic.
type cronPart struct {
	cron
	zone *zone
	dst  dstPolicy
}

// gapDue reports whether the gap that opened this span swallowed a due time that
// is made up for when the gap ends.
func (p cronPart) gapDue(s span) bool {
	if s.shift <= 0 || p.dst.skipGap || p.hour == allHours {
		return false
	}
	end := s.wall(s.start)
	missed, _ := p.cron.next(end.Add(-s.shift), end.Add(-time.Second))
	return !missed.IsZero()
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
	due, _ := p.searchNext(after)
	return due
}

func (p cronPart) last(at time.Time) time.Time {
	due, _ := p.searchLast(at)
	return due
}

// far is longer than any change of the clock, and than two offsets differ.
const far = 48 * time.Hour

// searchNext also says how many months it has looked at. Where the clock on the
// wall, if it went on as it does, would not match for long, the search leaves out
// the changes of the clock between: they show no time that it has not seen.
func (p cronPart) searchNext(after time.Time) (due time.Time, looked int) {
	t := after.Truncate(time.Second).Add(time.Second)
	horizon := t.AddDate(cronHorizon, 0, 0)
	for !t.After(horizon) {
		s := p.zone.spanAt(t)
		if t.Equal(s.start) && p.gapDue(s) {
			return t, looked
		}
		if first := p.first(s); t.Before(first) {
			t = first
		}
		w, n := p.cron.next(s.wall(t), s.wall(horizon))
		looked += n
		switch match := s.real(w); {
		case w.IsZero():
			return time.Time{}, looked
		case s.end.IsZero() || match.Before(s.end):
			return match, looked
		case match.Sub(s.end) > far && s.end.Sub(t) > far:
			t = match.Add(-far)
		default:
			t = s.end
		}
	}
	return time.Time{}, looked
}

// searchLast is searchNext backwards.
func (p cronPart) searchLast(at time.Time) (due time.Time, looked int) {
	t := at.Truncate(time.Second)
	horizon := t.AddDate(-cronHorizon, 0, 0)
	for !t.Before(horizon) {
		s := p.zone.spanAt(t)
		w, n := p.cron.last(s.wall(t), s.wall(horizon))
		looked += n
		switch match := s.real(w); {
		case !w.IsZero() && !match.Before(p.first(s)):
			return match, looked
		case !s.start.IsZero() && p.gapDue(s):
			return s.start, looked
		case w.IsZero() || s.start.IsZero():
			return time.Time{}, looked
		case s.start.Sub(match) > far && t.Sub(s.start) > far:
			t = match.Add(far)
		default:
			t = s.start.Add(-time.Second)
		}
	}
	return time.Time{}, looked
}
