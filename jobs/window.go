package jobs

import "time"

// A windowPart leaves out instants of a part: those before its begin, after its
// end, and on its days off.
type windowPart struct {
	part
	begin, end time.Time // zero: none
	off        map[date]bool
	zone       *zone
}

// A date is a day of the calendar.
type date struct {
	year  int
	month time.Month
	day   int
}

func (w windowPart) dateOf(t time.Time) date {
	year, month, day := w.zone.spanAt(t).wall(t).Date()
	return date{year, month, day}
}

func (w windowPart) next(after time.Time) time.Time {
	if !w.begin.IsZero() && after.Before(w.begin) {
		after = w.begin.Add(-1)
	}
	for {
		t := w.part.next(after)
		switch {
		case t.IsZero(), !w.end.IsZero() && t.After(w.end):
			return time.Time{}
		case !w.off[w.dateOf(t)]:
			return t
		}
		_, end := w.day(t)
		after = end.Add(-1)
	}
}

func (w windowPart) last(at time.Time) time.Time {
	if !w.end.IsZero() && at.After(w.end) {
		at = w.end
	}
	for {
		t := w.part.last(at)
		switch {
		case t.IsZero(), t.Before(w.begin):
			return time.Time{}
		case !w.off[w.dateOf(t)]:
			return t
		}
		begin, _ := w.day(t)
		at = begin.Add(-1)
	}
}

// day is the time around t, end excluded, in which the date stays the same and the
// clock is not changed.
func (w windowPart) day(t time.Time) (begin, end time.Time) {
	s := w.zone.spanAt(t)
	midnight := s.wall(t).Truncate(24 * time.Hour)
	begin, end = s.real(midnight), s.real(midnight.Add(24*time.Hour))
	if begin.Before(s.start) {
		begin = s.start
	}
	if !s.end.IsZero() && s.end.Before(end) {
		end = s.end
	}
	return begin, end
}
