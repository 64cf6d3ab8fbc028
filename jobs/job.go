// Package jobs holds the nouns: what a job is, when it is due, what came of it.
//
// A [Job] is what TOML defines. Its [Schedule] says when it is due, as a pure
// function: every replica that asks gets the same instants, whenever it was
// started. A [Tick] is a job and one such instant. A [Run] is what became of a
// tick, and the row that the store keeps of it.
//
// What may live here: plain data, its validation, and functions of nothing but
// their arguments. What may not: a driver, a network, a clock that is read, an
// import of any other room of this house.
package jobs

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// A Job is what a [jobs.NAME] table of the config defines. It does not change
// after it was loaded: a run keeps the Job that it started with.
type Job struct {
	Name        string `toml:"-"`
	Description string `toml:"description"`

	// When it is due: any number of each, less what is left out, and moved a little.
	Cron      Strings   `toml:"cron"`
	Every     Durations `toml:"every"`
	At        Times     `toml:"at"`
	Timezone  string    `toml:"timezone"`
	DSTGap    Gap       `toml:"dst_gap"`
	DSTFold   Fold      `toml:"dst_fold"`
	NotBefore Instant   `toml:"not_before"`
	NotAfter  Instant   `toml:"not_after"`
	Except    Dates     `toml:"except"`
	Jitter    Duration  `toml:"jitter"`

	// How it is kept from running twice, or over another.
	Lock          string   `toml:"lock"`
	TTL           Duration `toml:"ttl"`
	Overlap       Overlap  `toml:"overlap"`
	StartDeadline Duration `toml:"start_deadline"`

	// What it does, and what it may be told.
	Timeout Duration         `toml:"timeout"`
	Params  map[string]Param `toml:"-"`
	Steps   []Step           `toml:"steps"`

	schedule Schedule
	zone     *zone
}

// Overlap says what becomes of a tick whose lock is held by an earlier run.
type Overlap string

const (
	OverlapSkip  Overlap = "skip"  // record the tick as skipped
	OverlapQueue Overlap = "queue" // wait for the lock until the start deadline
	OverlapAllow Overlap = "allow" // each tick has a lock of its own
)

// Values are the words that it may be.
func (Overlap) Values() []string {
	return []string{string(OverlapSkip), string(OverlapQueue), string(OverlapAllow)}
}

// Defaults of a job, where its table says nothing.
const (
	DefaultTTL           = 10 * time.Second
	DefaultStartDeadline = time.Minute
	DefaultTimeout       = time.Hour
	MinTTL               = 100 * time.Millisecond
)

// A Problem is a mistake in a job: which key, and what to do about it.
type Problem struct {
	Key     []string
	Message string
}

func (p Problem) Error() string { return fmt.Sprintf("%v: %s", p.Key, p.Message) }

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,99}$`)

// Prepare fills in the defaults, builds the schedule and returns every mistake
// it finds. A job with mistakes must not be used.
func (j *Job) Prepare() []Problem {
	var bad []Problem
	problem := func(key, format string, args ...any) {
		path := []string{"jobs", j.Name}
		if key != "" {
			path = append(path, key)
		}
		bad = append(bad, Problem{path, fmt.Sprintf(format, args...)})
	}
	j.defaults()

	if !nameRule.MatchString(j.Name) {
		problem("", "job name %q: use lower-case letters, digits, '-', '_' and '.', beginning with a letter or digit, at most 100", j.Name)
	}
	if !nameRule.MatchString(j.Lock) {
		problem("lock", "lock name %q: use lower-case letters, digits, '-', '_' and '.', at most 100", j.Lock)
	}
	if j.TTL.D() < MinTTL {
		problem("ttl", "ttl %s is too short to be extended in time: at least %s", j.TTL, MinTTL)
	}
	if !slices.Contains(j.Overlap.Values(), string(j.Overlap)) {
		problem("overlap", "overlap %q: %s", j.Overlap, choose(string(j.Overlap), j.Overlap.Values()))
	}
	if j.StartDeadline <= 0 {
		problem("start_deadline", "start_deadline must be longer than zero")
	}
	if j.Timeout <= 0 {
		problem("timeout", "timeout must be longer than zero")
	}
	schedule, problems := j.buildSchedule()
	for _, p := range problems {
		problem(p.Key[0], "%s", p.Message)
	}
	j.schedule = schedule
	bad = append(bad, j.checkParams()...)
	for i := range j.Steps {
		j.Steps[i].params = j.Params
	}
	return append(append(bad, j.checkSteps()...), j.checkTemplates()...)
}

func (j *Job) defaults() {
	set := func(d *Duration, to time.Duration) {
		if *d == 0 {
			*d = Duration(to)
		}
	}
	set(&j.TTL, DefaultTTL)
	set(&j.StartDeadline, DefaultStartDeadline)
	set(&j.Timeout, DefaultTimeout)
	if j.Lock == "" {
		j.Lock = j.Name
	}
	if j.Overlap == "" {
		j.Overlap = OverlapSkip
	}
}

// Schedule says when the job is due.
func (j *Job) Schedule() Schedule { return j.schedule }

// Zone is the time zone by whose clock the job is due.
func (j *Job) Zone() *time.Location {
	if j.zone == nil {
		return time.UTC
	}
	return j.zone.Location
}
