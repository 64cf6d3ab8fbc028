package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Step is one thing that a job does. It is of exactly one kind.
type Step struct {
	Name    string   `toml:"name"`
	Timeout Duration `toml:"timeout"` // of each try

	// What becomes of it when it fails. A try is repeated where nothing of it has
	// happened; where that is not known, only a step that is idempotent.
	Retries    int      `toml:"retries"`
	Backoff    Duration `toml:"backoff"` // before the second try; twice as long before each further one
	Idempotent bool     `toml:"idempotent"`
	OnFailure  string   `toml:"on_failure"` // a step that runs then, and only then

	// An SQL step: its statements run in one transaction on the target.
	Target        string  `toml:"target"`
	SQL           Strings `toml:"sql"`
	ExpectRows    *int64  `toml:"expect_rows"`
	Isolation     string  `toml:"isolation"`
	Transactional *bool   `toml:"transactional"` // false: each statement by itself, without the fence

	// An HTTP step.
	HTTP *HTTP `toml:"http"`

	// A command step: argv, never a shell.
	Command []string          `toml:"command"`
	Dir     string            `toml:"dir"`
	Env     map[string]string `toml:"env"`
	Exit    Exit              `toml:"exit"`

	// A Go function, for those who import the packages.
	Func Func `toml:"-" json:"-"`

	params map[string]Param // those of its job
}

// Params are the parameters of the job, which the step may name.
func (s Step) Params() map[string]Param { return s.params }

// A Func is a step written in Go. Its context ends before the lease does.
type Func func(ctx context.Context, run Run) error

// DefaultBackoff is how long a step with retries waits before its second try.
const DefaultBackoff = time.Second

// Isolations are the levels that an SQL step may ask for.
var isolations = []string{"read committed", "repeatable read", "serializable"}

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

// Loose reports whether an SQL step gives up its transaction, and the fence with it.
func (s Step) Loose() bool { return s.Transactional != nil && !*s.Transactional }

// OnlyOnFailure reports whether a step waits for another one to fail.
func (j *Job) OnlyOnFailure(step string) bool {
	return slices.ContainsFunc(j.Steps, func(s Step) bool { return s.OnFailure == step })
}

func (j *Job) checkSteps() (bad []Problem) {
	if len(j.Steps) == 0 {
		return []Problem{{[]string{"jobs", j.Name}, fmt.Sprintf("job %q has no steps: add [[jobs.%s.steps]] with sql, http or command", j.Name, j.Name)}}
	}
	for i := range j.Steps {
		if s := &j.Steps[i]; s.Name == "" {
			s.Name = fmt.Sprintf("step%d", i+1)
		}
	}
	for i := range j.Steps {
		s := &j.Steps[i]
		problem := func(key, format string, args ...any) {
			path := []string{"jobs", j.Name, "steps", fmt.Sprint(i)}
			if key != "" {
				path = append(path, strings.Split(key, ".")...)
			}
			bad = append(bad, Problem{path, fmt.Sprintf("step %q: ", s.Name) + fmt.Sprintf(format, args...)})
		}
		if slices.ContainsFunc(j.Steps[:i], func(o Step) bool { return o.Name == s.Name }) {
			problem("name", "another step of this job has that name")
		}
		s.check(problem)
		j.checkOnFailure(s, problem)
	}
	return bad
}

// checkOnFailure keeps what runs on failure plain: one step, no chain of them.
func (j *Job) checkOnFailure(s *Step, problem func(key, format string, args ...any)) {
	if s.OnFailure == "" {
		return
	}
	i := slices.IndexFunc(j.Steps, func(o Step) bool { return o.Name == s.OnFailure })
	switch {
	case s.OnFailure == s.Name:
		problem("on_failure", "cannot be what runs when it has failed itself")
	case i < 0:
		problem("on_failure", "no step of this job is named %q: add it to [[jobs.%s.steps]]", s.OnFailure, j.Name)
	case j.Steps[i].OnFailure != "":
		problem("on_failure", "step %q has an on_failure of its own, and so cannot be one", s.OnFailure)
	}
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
	s.checkRetries(problem)
	switch s.Kind() {
	case "sql":
		s.checkSQL(problem)
	case "http":
		s.HTTP.check(problem)
	case "command":
		s.checkCommand(problem)
	}
	for _, stray := range []struct {
		key string
		set bool
		of  string
	}{
		{"target", s.Target != "", "sql"}, {"expect_rows", s.ExpectRows != nil, "sql"},
		{"isolation", s.Isolation != "", "sql"}, {"transactional", s.Transactional != nil, "sql"},
		{"dir", s.Dir != "", "command"}, {"env", len(s.Env) > 0, "command"},
		{"exit", s.Exit.set(), "command"},
	} {
		if stray.set && s.Kind() != stray.of {
			problem(stray.key, "%s belongs to a step with %s; this one has %s", stray.key, stray.of, s.Kind())
		}
	}
}

func (s *Step) checkRetries(problem func(key, format string, args ...any)) {
	if s.Retries < 0 || s.Retries > 100 {
		problem("retries", "retries = %d: want 0 to 100", s.Retries)
	}
	if s.Backoff < 0 {
		problem("backoff", "backoff must not be negative")
	}
	if s.Backoff > 0 && s.Retries == 0 {
		problem("backoff", "backoff is the pause before a retry, and there are none: add retries")
	}
	if s.Retries > 0 && s.Backoff == 0 {
		s.Backoff = Duration(DefaultBackoff)
	}
	if s.Idempotent && s.Kind() == "sql" && !s.Loose() {
		problem("idempotent", "a step that is one transaction is repeated without harm as it is: leave idempotent out")
	}
}

func (s *Step) checkSQL(problem func(key, format string, args ...any)) {
	if s.Target == "" {
		problem("sql", "say which database: target = \"NAME\", defined in [targets.NAME]")
	}
	if s.Isolation != "" && !slices.Contains(isolations, s.Isolation) {
		problem("isolation", "isolation %q: want %s", s.Isolation, strings.Join(isolations, ", "))
	}
	if s.Isolation != "" && s.Loose() {
		problem("isolation", "isolation is a transaction's, and this step has none: transactional = false")
	}
}
