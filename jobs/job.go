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
	"context"
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

	// When it is due: any number of each.
	Cron     Strings   `toml:"cron"`
	Every    Durations `toml:"every"`
	At       Times     `toml:"at"`
	Timezone string    `toml:"timezone"`
	DSTGap   string    `toml:"dst_gap"`
	DSTFold  string    `toml:"dst_fold"`

	// How it is kept from running twice, or over another.
	Lock          string   `toml:"lock"`
	TTL           Duration `toml:"ttl"`
	Overlap       Overlap  `toml:"overlap"`
	StartDeadline Duration `toml:"start_deadline"`

	// What it does.
	Timeout Duration `toml:"timeout"`
	Steps   []Step   `toml:"steps"`

	schedule Schedule
}

// A Step is one thing that a job does. It is of exactly one kind.
type Step struct {
	Name    string   `toml:"name"`
	Timeout Duration `toml:"timeout"`

	// An SQL step: its statements run in one transaction on the target.
	Target     string  `toml:"target"`
	SQL        Strings `toml:"sql"`
	ExpectRows *int64  `toml:"expect_rows"`

	// An HTTP step.
	HTTP *HTTP `toml:"http"`

	// A command step: argv, never a shell.
	Command []string          `toml:"command"`
	Dir     string            `toml:"dir"`
	Env     map[string]string `toml:"env"`

	// A Go function, for those who import the packages.
	Func Func `toml:"-" json:"-"`
}

// HTTP is the request that an HTTP step sends.
type HTTP struct {
	Method  string            `toml:"method"`
	URL     string            `toml:"url"`
	Headers map[string]Secret `toml:"headers"`
	Body    string            `toml:"body"`
	Expect  []int             `toml:"expect_status"`
}

// A Func is a step written in Go. Its context ends before the lease does.
type Func func(ctx context.Context, run Run) error

// Kind says what sort of step this is; it is empty for a step that does nothing.
func (s Step) Kind() string {
	switch {
	case len(s.SQL) > 0:
		return "sql"
	case s.HTTP != nil:
		return "http"
	case len(s.Command) > 0:
		return "command"
	case s.Func != nil:
		return "func"
	}
	return ""
}

// Overlap says what becomes of a tick whose lock is held by an earlier run.
type Overlap string

const (
	OverlapSkip  Overlap = "skip"  // record the tick as skipped
	OverlapQueue Overlap = "queue" // wait for the lock until the start deadline
	OverlapAllow Overlap = "allow" // each tick has a lock of its own
)

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
	if !slices.Contains([]Overlap{OverlapSkip, OverlapQueue, OverlapAllow}, j.Overlap) {
		problem("overlap", "overlap %q: want skip, queue or allow", j.Overlap)
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
	return append(bad, j.checkSteps()...)
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

func (j *Job) checkSteps() (bad []Problem) {
	if len(j.Steps) == 0 {
		return []Problem{{[]string{"jobs", j.Name}, fmt.Sprintf("job %q has no steps: add [[jobs.%s.steps]] with sql, http or command", j.Name, j.Name)}}
	}
	seen := map[string]bool{}
	for i := range j.Steps {
		s := &j.Steps[i]
		problem := func(key, format string, args ...any) {
			path := []string{"jobs", j.Name, "steps", fmt.Sprint(i)}
			if key != "" {
				path = append(path, key)
			}
			bad = append(bad, Problem{path, fmt.Sprintf("step %q: ", s.Name) + fmt.Sprintf(format, args...)})
		}
		if s.Name == "" {
			s.Name = fmt.Sprintf("step%d", i+1)
		}
		if seen[s.Name] {
			problem("name", "another step of this job has that name")
		}
		seen[s.Name] = true
		s.check(problem)
	}
	return bad
}

func (s *Step) check(problem func(key, format string, args ...any)) {
	kinds := 0
	for _, is := range []bool{len(s.SQL) > 0, s.HTTP != nil, len(s.Command) > 0, s.Func != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		problem("", "has %d of sql, http and command; a step is exactly one", kinds)
		return
	}
	if s.Timeout < 0 {
		problem("timeout", "timeout must not be negative")
	}
	switch s.Kind() {
	case "sql":
		if s.Target == "" {
			problem("sql", "say which database: target = \"NAME\", defined in [targets.NAME]")
		}
	case "http":
		s.HTTP.check(problem)
	}
	for _, stray := range []struct {
		key string
		set bool
		of  string
	}{
		{"target", s.Target != "", "sql"}, {"expect_rows", s.ExpectRows != nil, "sql"},
		{"dir", s.Dir != "", "command"}, {"env", len(s.Env) > 0, "command"},
	} {
		if stray.set && s.Kind() != stray.of {
			problem(stray.key, "%s belongs to a step with %s; this one has %s", stray.key, stray.of, s.Kind())
		}
	}
}

func (h *HTTP) check(problem func(key, format string, args ...any)) {
	if h.Method == "" {
		h.Method = "POST"
	}
	if len(h.Expect) == 0 {
		h.Expect = []int{200, 201, 202, 204}
	}
	if !regexp.MustCompile(`^https?://[^/]+`).MatchString(h.URL) {
		problem("http", "url %q: want http://… or https://…", h.URL)
	}
}

// Schedule says when the job is due.
func (j *Job) Schedule() Schedule { return j.schedule }
