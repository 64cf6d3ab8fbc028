package jobs

import (
	"slices"
	"time"
)

// A Schedule says when a job is due. It is a pure function of what the config
// says: not of when a process was started, nor of what ran before. The zero
// Schedule is never due.
type Schedule struct {
	part part // nil for a job that runs by hand only
	text string
}

// A part is a way to be due: a cron line, a period, a list of instants, or one of
// these with something left out or moved. It is asked about the years that
// Schedule knows alone.
type part interface {
	next(after time.Time) time.Time // first instant later than after; zero if none
	last(at time.Time) time.Time    // latest instant not later than at; zero if none
}

// A schedule has instants in these years alone. Time zones begin about then, and
// RFC 3339 has no later year.
var (
	firstYear = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	lastYear  = time.Date(9999-cronHorizon, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Next returns the first instant after the given one at which the job is due, or
// the zero time if there is none.
func (s Schedule) Next(after time.Time) time.Time {
	if s.part == nil || after.After(lastYear) {
		return time.Time{}
	}
	if after.Before(firstYear) {
		after = firstYear
	}
	return s.part.next(after).UTC()
}

// Last returns the latest instant at which the job was due, the given one
// included, or the zero time if there is none.
func (s Schedule) Last(at time.Time) time.Time {
	if s.part == nil || at.Before(firstYear) {
		return time.Time{}
	}
	if at.After(lastYear) {
		at = lastYear
	}
	return s.part.last(at).UTC()
}

// Never reports whether the job has no schedule: it runs by hand only.
func (s Schedule) Never() bool { return s.part == nil }

// String is the whole of what the schedule depends on: two schedules of a job with
// the same text are due at the same instants.
func (s Schedule) String() string { return s.text }

// An anyPart is due whenever one of its parts is.
type anyPart []part

func (a anyPart) next(after time.Time) (first time.Time) {
	for _, p := range a {
		if t := p.next(after); !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

func (a anyPart) last(at time.Time) (latest time.Time) {
	for _, p := range a {
		if t := p.last(at); t.After(latest) {
			latest = t
		}
	}
	return latest
}

// An everyPart is due at each multiple of its period since the Unix epoch, so
// that replicas agree whenever they were started.
type everyPart time.Duration

func (e everyPart) next(after time.Time) time.Time { return e.last(after).Add(time.Duration(e)) }

func (e everyPart) last(at time.Time) time.Time {
	period := int64(time.Duration(e) / time.Second)
	sec := at.Unix()
	over := sec % period
	if over < 0 {
		over += period
	}
	return time.Unix(sec-over, 0)
}

// An atPart is due at each of its instants, which are sorted.
type atPart []time.Time

func (a atPart) next(after time.Time) time.Time {
	i, found := slices.BinarySearchFunc(a, after, time.Time.Compare)
	for found && i < len(a) && !a[i].After(after) {
		i++
	}
	if i == len(a) {
		return time.Time{}
	}
	return a[i]
}

func (a atPart) last(at time.Time) time.Time {
	i, found := slices.BinarySearchFunc(a, at, time.Time.Compare)
	switch {
	case found:
		return a[i]
	case i == 0:
		return time.Time{}
	}
	return a[i-1]
}
