package jobs

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A spec collects the parts of a schedule, what they were written as, and what is
// wrong with them.
type spec struct {
	parts    anyPart
	text     []string
	bad      []Problem
	shortest time.Duration // between two instants of one part
}

func (s *spec) problem(key, format string, args ...any) {
	s.bad = append(s.bad, Problem{[]string{key}, fmt.Sprintf(format, args...)})
}

func (s *spec) add(p part, spacing time.Duration, format string, args ...any) {
	s.parts = append(s.parts, p)
	s.text = append(s.text, fmt.Sprintf(format, args...))
	if s.shortest == 0 || spacing < s.shortest {
		s.shortest = spacing
	}
}

// buildSchedule turns what the job says into a Schedule. The problems are keyed by
// the job's own keys.
func (j *Job) buildSchedule() (Schedule, []Problem) {
	var s spec
	var err error
	if j.zone, err = loadZone(j.Timezone); err != nil {
		s.problem("timezone", "%v", err)
		j.zone = &zone{Location: time.UTC}
	}
	j.addCron(&s)
	for _, period := range j.Every {
		if period < time.Second || period%time.Second != 0 {
			s.problem("every", "every %s: want whole seconds, one at least", Duration(period))
			continue
		}
		s.add(everyPart(period), period, "every %s", Duration(period))
	}
	j.addAt(&s)
	if len(s.parts) == 0 {
		j.limitsNothing(&s)
		return Schedule{}, s.bad
	}
	var all part = s.parts
	all = j.window(&s, all)
	if j.jitter(&s) {
		all = jittered(all, j.Jitter.D(), j.Name)
	}
	schedule := Schedule{all, strings.Join(s.text, "; ")}
	if len(s.bad) == 0 && schedule.Next(time.Time{}).IsZero() {
		s.problem("", "job %q is never due: not_before, not_after and except leave nothing of its schedule", j.Name)
	}
	return schedule, s.bad
}

func (j *Job) addCron(s *spec) {
	if j.DSTGap != "" && !slices.Contains(j.DSTGap.Values(), string(j.DSTGap)) {
		s.problem("dst_gap", "dst_gap %q: %s", j.DSTGap, choose(string(j.DSTGap), j.DSTGap.Values()))
	}
	if j.DSTFold != "" && !slices.Contains(j.DSTFold.Values(), string(j.DSTFold)) {
		s.problem("dst_fold", "dst_fold %q: %s", j.DSTFold, choose(string(j.DSTFold), j.DSTFold.Values()))
	}
	for _, line := range j.Cron {
		c, err := parseCron(line)
		if err != nil {
			s.problem("cron", "%v", err)
			continue
		}
		spacing := time.Duration(0)
		if j.Jitter != 0 {
			spacing = c.spacing()
		}
		s.add(cronPart{c, j.zone, j.dstPolicy()}, spacing, "cron %s in %s", line, j.zone)
	}
	if len(j.Cron) > 0 && (j.DSTGap != "" || j.DSTFold != "") {
		s.text = append(s.text, fmt.Sprintf("gap %s fold %s", j.DSTGap, j.DSTFold))
	}
}

func (j *Job) addAt(s *spec) {
	if len(j.At) == 0 {
		return
	}
	at := slices.CompactFunc(slices.SortedFunc(slices.Values(j.At), time.Time.Compare), time.Time.Equal)
	spacing := Duration(1<<63 - 1).D()
	words := make([]string, len(at))
	for i, t := range at {
		words[i] = "at " + t.UTC().Format(time.RFC3339Nano)
		if i > 0 {
			spacing = min(spacing, t.Sub(at[i-1]))
		}
	}
	s.add(atPart(at), spacing, "%s", strings.Join(words, "; "))
}

// limitsNothing refuses what changes a schedule where there is none.
func (j *Job) limitsNothing(s *spec) {
	for key, set := range map[string]bool{
		"not_before": !j.NotBefore.IsZero(), "not_after": !j.NotAfter.IsZero(),
		"except": len(j.Except) > 0, "jitter": j.Jitter != 0,
	} {
		if set && len(s.bad) == 0 {
			s.problem(key, "%s changes a schedule, and job %q has none: add cron, every or at", key, j.Name)
		}
	}
}

func (j *Job) window(s *spec, all part) part {
	if j.NotBefore.IsZero() && j.NotAfter.IsZero() && len(j.Except) == 0 {
		return all
	}
	w := windowPart{part: all, begin: j.NotBefore.Time, end: j.NotAfter.Time, off: map[date]bool{}, zone: j.zone}
	if !w.begin.IsZero() {
		s.text = append(s.text, "not before "+w.begin.UTC().Format(time.RFC3339Nano))
	}
	if !w.end.IsZero() {
		s.text = append(s.text, "not after "+w.end.UTC().Format(time.RFC3339Nano))
		if w.end.Before(w.begin) {
			s.problem("not_after", "not_after is before not_before: job %q is never due", j.Name)
		}
	}
	for _, day := range j.Except {
		t, err := time.Parse(time.DateOnly, day)
		if err != nil {
			s.problem("except", "except %q: want a date like \"2026-12-25\"", day)
			continue
		}
		year, month, d := t.Date()
		w.off[date{year, month, d}] = true
	}
	if len(j.Except) > 0 {
		s.text = append(s.text, fmt.Sprintf("except %s in %s", strings.Join(j.Except, ", "), j.zone))
	}
	return w
}

func (j *Job) jitter(s *spec) bool {
	switch jitter := j.Jitter.D(); {
	case jitter == 0:
		return false
	case jitter < time.Millisecond:
		s.problem("jitter", "jitter %s: want a millisecond at least", j.Jitter)
		return false
	case jitter > s.shortest:
		s.problem("jitter", "jitter %s is longer than the %s between two ticks", j.Jitter, Duration(s.shortest))
	}
	s.text = append(s.text, "jitter "+j.Jitter.String())
	return true
}
