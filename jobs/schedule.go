package jobs

import (
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // replicas must agree on time zones, whatever their image holds
)

// A Schedule says when a job is due. It is a pure function of what the config
// says: not of when a process was started, nor of what ran before. The zero
// Schedule is never due.
type Schedule struct {
	parts []part
	text  string
}

// A part is one way to be due: a cron line, a period, or a list of instants.
type part interface {
	next(after time.Time) time.Time // first instant later than after; zero if none
	last(at time.Time) time.Time    // latest instant not later than at; zero if none
}

// Next returns the first instant after the given one at which the job is due, or
// the zero time if there is none.
func (s Schedule) Next(after time.Time) time.Time {
	var first time.Time
	for _, p := range s.parts {
		if t := p.next(after); !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first.UTC()
}

// Last returns the latest instant at which the job was due, the given one
// included, or the zero time if there is none.
func (s Schedule) Last(at time.Time) time.Time {
	var latest time.Time
	for _, p := range s.parts {
		if t := p.last(at); t.After(latest) {
			latest = t
		}
	}
	return latest.UTC()
}

// Never reports whether the job has no schedule: it runs by hand only.
func (s Schedule) Never() bool { return len(s.parts) == 0 }

// String is the whole of what the schedule depends on: two schedules with the
// same text are due at the same instants.
func (s Schedule) String() string { return s.text }

// buildSchedule turns the job's cron, every and at into a Schedule. The problems
// are keyed by the job's own keys.
func (j *Job) buildSchedule() (Schedule, []Problem) {
	var s Schedule
	var bad []Problem
	problem := func(key string, err error) { bad = append(bad, Problem{[]string{key}, err.Error()}) }
	var text []string

	zone, err := loadZone(j.Timezone)
	if err != nil {
		problem("timezone", err)
	}
	policy, err := j.dstPolicy()
	if err != nil {
		problem("dst_gap", err)
	}
	for _, line := range j.Cron {
		c, err := parseCron(line)
		if err != nil {
			problem("cron", err)
			continue
		}
		s.parts = append(s.parts, cronPart{c, zone, policy})
		text = append(text, fmt.Sprintf("cron %s in %s", line, zone))
	}
	if len(j.Cron) > 0 && (j.DSTGap != "" || j.DSTFold != "") {
		text = append(text, fmt.Sprintf("gap %s fold %s", j.DSTGap, j.DSTFold))
	}
	for _, period := range j.Every {
		if period < time.Second || period%time.Second != 0 {
			problem("every", fmt.Errorf("every %s: want whole seconds, one at least", Duration(period)))
			continue
		}
		s.parts = append(s.parts, everyPart(period))
		text = append(text, "every "+Duration(period).String())
	}
	if len(j.At) > 0 {
		at := atPart(slices.SortedFunc(slices.Values(j.At), time.Time.Compare))
		s.parts = append(s.parts, at)
		for _, t := range at {
			text = append(text, "at "+t.UTC().Format(time.RFC3339Nano))
		}
	}
	s.text = strings.Join(text, "; ")
	return s, bad
}

func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return time.UTC, fmt.Errorf("timezone \"Local\" differs between replicas: name the zone, like \"Europe/Berlin\"")
	}
	zone, err := time.LoadLocation(name) // "" is UTC
	if err != nil {
		return time.UTC, fmt.Errorf("timezone %q is not known: use an IANA name like \"Europe/Berlin\", or \"UTC\"", name)
	}
	return zone, nil
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
	for _, t := range a {
		if t.After(after) {
			return t
		}
	}
	return time.Time{}
}

func (a atPart) last(at time.Time) time.Time {
	for _, t := range slices.Backward(a) {
		if !t.After(at) {
			return t
		}
	}
	return time.Time{}
}
