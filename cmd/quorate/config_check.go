package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
)

// A judge notes what is wrong with a config whose values could all be read, and
// keeps silent about what only follows from one that could not.
type judge struct {
	*Config
	read    []problem      // mistakes in single values
	targets *steps.Targets // those whose URLs can be read
	good    map[string]jobs.Secret
}

func (c *Config) check() {
	j := &judge{Config: c, read: slices.Clone(c.source.bad), good: map[string]jobs.Secret{}}
	j.redlock()
	j.servers()
	j.openTargets()
	defer j.targets.Close()
	j.jobs()
}

func (j *judge) problem(key []string, format string, args ...any) {
	if !wrongWithin(j.read, key) {
		j.source.problem(key, format, args...)
	}
}

// wrongWithin reports whether something is wrong with this key, or with what is
// inside it.
func wrongWithin(bad []problem, key []string) bool {
	return slices.ContainsFunc(bad, func(p problem) bool {
		return !p.warning && len(p.key) >= len(key) && slices.Equal(p.key[:len(key)], key)
	})
}

func (j *judge) redlock() {
	r := j.Redlock
	if n := len(r.Masters); n%2 == 0 {
		j.problem([]string{"redlock", "masters"}, "%d masters: want an odd number of independent Redis servers, five for a start: masters = [\"redis://host:6379\", …]", n)
	}
	seen := map[string]int{}
	for i, m := range r.Masters {
		key := []string{"redlock", "masters", fmt.Sprint(i)}
		name, ok := masterName(m)
		switch {
		case !ok:
			j.problem(key, "master %d: want redis://host:6379, with user:password@ before the host if it asks for them, or rediss:// for TLS", i+1)
		case seen[name] > 0:
			j.problem(key, "master %d is master %d again: its vote would count twice", i+1, seen[name])
		}
		seen[name] = i + 1
	}
	if _, err := j.restartGuard(); err != nil {
		j.problem([]string{"redlock", "restart_guard"}, "%v", err)
	}
	if r.TTL.D() < jobs.MinTTL {
		j.problem([]string{"redlock", "ttl"}, "ttl %s is too short to be extended in time: at least %s", r.TTL, jobs.MinTTL)
	}
	if d := r.MasterTimeout.D(); d < time.Millisecond || d > time.Second {
		j.problem([]string{"redlock", "master_timeout"}, "master_timeout %s: want 1ms to 1s", r.MasterTimeout)
	}
	if f := r.DriftFactor; !(f > 0 && f < 0.5) {
		j.problem([]string{"redlock", "drift_factor"}, "drift_factor %v: want a part of the TTL, like 0.01", f)
	}
	if r.MinValidity < 0 {
		j.problem([]string{"redlock", "min_validity"}, "min_validity must not be negative")
	}
}

// masterName tells one server from another.
func masterName(m jobs.Secret) (name string, ok bool) {
	u, err := url.Parse(m.Reveal())
	if err != nil {
		return m.Reveal(), false
	}
	host := strings.ToLower(u.Host)
	if u.Port() == "" {
		host += ":6379"
	}
	switch u.Scheme {
	case "redis", "rediss":
		return host, u.Hostname() != ""
	case "unix":
		return u.Path, u.Path != ""
	}
	return host, false
}

func (j *judge) servers() {
	if j.Replica.DrainTimeout < 0 {
		j.problem([]string{"replica", "drain_timeout"}, "drain_timeout must not be negative")
	}
	scheme, rest, _ := strings.Cut(j.Store.URL.Reveal(), ":")
	if !slices.Contains([]string{"postgres", "postgresql", "sqlite"}, scheme) || rest == "" {
		j.problem([]string{"store", "url"}, "[store] url: want postgres://user:password@host/database, or sqlite:FILE for a single machine")
	}
	if t := j.Web.Token.Reveal(); len(t) < 16 {
		j.problem([]string{"web", "token"}, "[web] token: want at least 16 characters that nobody guesses: token = \"file:/run/secrets/quorate-token\", or \"${QUORATE_TOKEN}\"")
	}
}

func (j *judge) jobs() {
	if len(j.Jobs) == 0 {
		j.problem(nil, "no jobs: add a table [jobs.NAME] with a schedule and steps")
	}
	for _, name := range slices.Sorted(maps.Keys(j.Jobs)) {
		job := j.Jobs[name]
		job.Name = name
		j.zeros(job)
		if job.TTL == 0 {
			job.TTL = j.Redlock.TTL
		}
		for _, p := range job.Prepare() {
			j.problem(p.Key, "%s", p.Message)
		}
		if v := j.Redlock.MinValidity; v >= job.TTL {
			j.problem([]string{"jobs", name}, "job %q: its lock has a ttl of %s, and so is never good for the min_validity of [redlock], %s", name, job.TTL, v)
		}
		j.steps(job)
	}
}

// zeros finds durations that say zero, which would mean: the default.
func (j *judge) zeros(job *jobs.Job) {
	for key, d := range map[string]jobs.Duration{"ttl": job.TTL, "start_deadline": job.StartDeadline, "timeout": job.Timeout} {
		if d == 0 && j.source.has("jobs", job.Name, key) {
			j.problem([]string{"jobs", job.Name, key}, "%s must be longer than zero", key)
		}
	}
}

// openTargets opens the targets whose URLs can be read. That dials none of them.
func (j *judge) openTargets() {
	for _, name := range slices.Sorted(maps.Keys(j.Targets)) {
		opened, err := steps.Open(context.Background(), map[string]jobs.Secret{name: j.Targets[name].URL})
		if err != nil {
			j.problem([]string{"targets", name, "url"}, "%v", err)
		} else {
			j.good[name] = j.Targets[name].URL
		}
		opened.Close()
	}
	j.targets, _ = steps.Open(context.Background(), j.good) // each of them could be opened
}

func (j *judge) steps(job *jobs.Job) {
	for i, step := range job.Steps {
		key := []string{"jobs", job.Name, "steps", fmt.Sprint(i)}
		if _, known := j.Targets[step.Target]; step.Target != "" && !known {
			hint := "add [targets." + step.Target + "] with its url"
			if near := jobs.Nearest(step.Target, slices.Sorted(maps.Keys(j.Targets))); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			j.problem(append(key, "target"), "step %q: no target %q is defined: %s", step.Name, step.Target, hint)
		}
		for _, err := range j.sql(step) {
			j.problem(append(key, "sql"), "step %q: %v", step.Name, err)
		}
	}
}

// sql judges a step's statements, by the rules of its target where it is known.
func (j *judge) sql(step jobs.Step) (bad []error) {
	if _, ok := j.good[step.Target]; ok && step.Kind() == "sql" {
		if err := j.targets.CheckStep(step); err != nil {
			bad = append(bad, err)
		}
		return bad
	}
	for _, statement := range step.SQL {
		one := step
		one.SQL = jobs.Strings{statement}
		if err := steps.CheckSQL(one); err != nil {
			bad = append(bad, err)
		}
	}
	return bad
}

// doubt warns of what is allowed and probably not meant.
func (c *Config) doubt(now time.Time) {
	used := map[string]bool{}
	for _, j := range c.jobList() {
		for _, p := range j.Doubts(now) {
			c.source.warn(p.Key, "%s", p.Message)
		}
		for _, step := range j.Steps {
			used[step.Target] = true
		}
	}
	for name := range c.Targets {
		if !used[name] {
			c.source.warn([]string{"targets", name}, "no step uses the target %q", name)
		}
	}
}
