package store

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"quorate/jobs"
)

// MaxText is the most of one text (an output, an error) that a store keeps.
const MaxText = 64 << 10

// LiveFor is how long a replica counts as live after it was seen.
const LiveFor = 15 * time.Second

// Limits of a list.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Count is how many runs a list may hold at most.
func (f Filter) Count() int {
	switch {
	case f.Limit <= 0:
		return DefaultLimit
	case f.Limit > MaxLimit:
		return MaxLimit
	}
	return f.Limit
}

// Text makes a text fit to be kept: valid UTF-8 without NUL, at most MaxText
// bytes. A database refuses a whole statement for one such byte, and a run must
// not lose its history over what a step printed.
func Text(s string) string {
	s = cut(s)
	if strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) {
		return s
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	return cut(s)
}

// cut shortens a text without cutting a rune in two.
func cut(s string) string {
	if len(s) <= MaxText {
		return s
	}
	end := MaxText
	for end > MaxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// Steps makes the steps of an outcome fit to be kept.
func Steps(steps []jobs.StepRun) []jobs.StepRun {
	kept := slices.Clone(steps)
	for i := range kept {
		s := &kept[i]
		s.Name, s.Output, s.Error = Text(s.Name), Text(s.Output), Text(s.Error)
		s.Started, s.Finished = Instant(s.Started), Instant(s.Finished)
	}
	return kept
}

// Instant is the precision that a store keeps: microseconds, in UTC.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Check finds what no store may accept.
func (c Claim) Check() error {
	switch {
	case c.Tick.Job == nil:
		return fmt.Errorf("claim of a tick without a job")
	case c.Tick.Due.IsZero():
		return fmt.Errorf("claim of job %q: the tick has no due time", c.Tick.Job.Name)
	case c.Tick.Attempt < 1:
		return fmt.Errorf("claim of %s: attempt %d, but attempts count from 1", c.Tick, c.Tick.Attempt)
	case c.Tick.Trigger == "":
		return fmt.Errorf("claim of %s: nothing says what made the tick", c.Tick)
	case c.Replica == "":
		return fmt.Errorf("claim of %s: no replica claims it", c.Tick)
	case c.Lease <= 0:
		return fmt.Errorf("claim of %s: a lease of %s has ended before it began", c.Tick, c.Lease)
	}
	return nil
}

// CheckOutcome finds what Finish may not write: it is for how a run ended.
func CheckOutcome(run jobs.Run, o jobs.Outcome) error {
	switch o.Status {
	case jobs.Succeeded, jobs.Failed, jobs.Unknown:
		return nil
	}
	return fmt.Errorf("finish of run %d as %q: a run ends succeeded, failed or unknown", run.ID, o.Status)
}

// CheckEnded finds what Record may not write: it is for ticks that never ran.
func CheckEnded(r jobs.Run) error {
	switch {
	case r.Job == "" || r.Due.IsZero():
		return fmt.Errorf("record of job %q due %s: a tick is a job and an instant", r.Job, r.Due)
	case r.Attempt < 1:
		return fmt.Errorf("record of %s due %s: attempt %d, but attempts count from 1", r.Job, r.Due, r.Attempt)
	case r.Trigger == "":
		return fmt.Errorf("record of %s due %s: nothing says what made the tick", r.Job, r.Due)
	case r.Status != jobs.Skipped && r.Status != jobs.Missed:
		return fmt.Errorf("record of %s due %s as %q: a tick that never ran is skipped or missed", r.Job, r.Due, r.Status)
	}
	return nil
}
