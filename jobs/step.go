package jobs

import (
	"context"
	"fmt"
	"regexp"
)

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
	URL     string            `toml:"url" expand:"yes"`
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
