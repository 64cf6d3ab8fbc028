package jobs

import "time"

// A ClockChange is a change of the clock that leaves out times at which a job is
// due, or shows them twice.
type ClockChange struct {
	At   time.Time   // when the clock is changed
	Gap  bool        // times are left out; else they come twice
	Wall time.Time   // the first such time at which the job is due, as the clock shows it
	More int         // how many more there are
	Due  []time.Time // when the job runs on account of Wall: never, once or twice
}

// ClockChanges lists the changes of the clock from one instant to another that
// matter to the job. Those of a line with * for the hour do not: it means every
// real hour.
func (j *Job) ClockChanges(from, to time.Time) (all []ClockChange) {
	for s := j.zone.spanAt(from); !s.end.IsZero() && s.end.Before(to); {
		s = j.zone.spanAt(s.end)
		var change ClockChange
		for _, p := range j.cronParts() {
			if p.hour != allHours {
				change = change.earlier(p.clockChange(s))
			}
		}
		if !change.Wall.IsZero() && !j.leavesOut(change) {
			all = append(all, change)
		}
	}
	return all
}

func (j *Job) cronParts() (all []cronPart) {
	for _, line := range j.Cron {
		if c, err := parseCron(line); err == nil {
			all = append(all, cronPart{c, j.zone, j.dstPolicy()})
		}
	}
	return all
}

// leavesOut reports whether the change is of no account, by the job's own limits.
func (j *Job) leavesOut(c ClockChange) bool {
	first, _ := j.window(&spec{}, atPart{c.At}).(windowPart)
	return first.part != nil && first.next(c.At.Add(-1)).IsZero()
}

// clockChange looks at the change that begins a span.
func (p cronPart) clockChange(s span) ClockChange {
	c := ClockChange{At: s.start, Gap: s.shift > 0}
	end := s.wall(s.start)
	from, until := end.Add(-s.shift), end.Add(-time.Second)
	if !c.Gap {
		from, until = end, end.Add(-s.shift-time.Second)
	}
	for w, _ := p.cron.next(from, until); !w.IsZero(); w, _ = p.cron.next(w.Add(time.Second), until) {
		if c.Wall.IsZero() {
			c.Wall = w
		} else {
			c.More++
		}
	}
	switch second := s.real(c.Wall); {
	case c.Wall.IsZero():
	case c.Gap && !p.dst.skipGap:
		c.Due = []time.Time{s.start}
	case !c.Gap && p.dst.bothFold:
		c.Due = []time.Time{second.Add(s.shift), second}
	case !c.Gap:
		c.Due = []time.Time{second.Add(s.shift)}
	}
	return c
}

// earlier joins what one change does to two lines.
func (c ClockChange) earlier(d ClockChange) ClockChange {
	switch {
	case d.Wall.IsZero():
		return c
	case c.Wall.IsZero():
		return d
	}
	if d.Wall.Before(c.Wall) {
		c, d = d, c
	}
	c.More += d.More + 1
	return c
}
