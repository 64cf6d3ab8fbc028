package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"quorate/jobs"
	"quorate/jobs/steps"
)

// A Config is what config.toml says, over the defaults.
type Config struct {
	Replica struct {
		Name         string        `toml:"name"`
		Listen       string        `toml:"listen"`
		DrainTimeout jobs.Duration `toml:"drain_timeout"`
	} `toml:"replica"`

	Redlock struct {
		Masters       []jobs.Secret `toml:"masters"`
		MasterTimeout jobs.Duration `toml:"master_timeout"`
		DriftFactor   float64       `toml:"drift_factor"`
		MinValidity   jobs.Duration `toml:"min_validity"`
		RestartGuard  string        `toml:"restart_guard"`
	} `toml:"redlock"`

	Store struct {
		URL jobs.Secret `toml:"url"`
	} `toml:"store"`

	Web struct {
		Token        jobs.Secret `toml:"token"`
		AllowedHosts []string    `toml:"allowed_hosts"`
	} `toml:"web"`

	Targets map[string]Target    `toml:"targets"`
	Jobs    map[string]*jobs.Job `toml:"jobs"`

	source *source
}

// A Target is a database that SQL steps write to.
type Target struct {
	URL jobs.Secret `toml:"url"`
}

func defaults() *Config {
	c := &Config{}
	c.Replica.Listen = "127.0.0.1:8080"
	c.Replica.DrainTimeout = jobs.Duration(30 * time.Second)
	c.Redlock.MasterTimeout = jobs.Duration(50 * time.Millisecond)
	c.Redlock.DriftFactor = 0.01
	c.Redlock.RestartGuard = "auto"
	return c
}

// A configError is every mistake that was found in a config, one a line.
type configError struct{ lines []string }

func (e *configError) Error() string { return strings.Join(e.lines, "\n") }

// A source is the text of a config, and where its keys stand.
type source struct {
	path string
	at   positions
	bad  []problemAt
}

type problemAt struct {
	position
	message string
}

func (s *source) problem(key []string, format string, args ...any) {
	s.bad = append(s.bad, problemAt{s.at.of(key), fmt.Sprintf(format, args...)})
}

// err returns the problems in the order of their lines.
func (s *source) err() error {
	if len(s.bad) == 0 {
		return nil
	}
	slices.SortStableFunc(s.bad, func(a, b problemAt) int { return a.line - b.line })
	e := &configError{}
	for _, p := range s.bad {
		e.lines = append(e.lines, s.where(p.position)+": "+p.message)
	}
	return e
}

func (s *source) where(at position) string {
	if at.line == 0 {
		return s.path
	}
	return fmt.Sprintf("%s:%d:%d", s.path, at.line, at.column)
}

// fault is an error of something that the config names at this key: it says where,
// and how to mend it, unless err does.
func (c *Config) fault(err error, mend string, key ...string) error {
	line := fmt.Sprintf("%s: [%s]: %v", c.source.where(c.source.at.of(key)), key[0], err)
	if mend != "" {
		line += ": " + mend
	}
	return &configError{[]string{line}}
}

// A lookup finds a variable of the environment.
type lookup func(name string) (string, bool)

// loadConfig reads and judges a config file. What it returns can be used as it is.
func loadConfig(path string, env lookup) (*Config, error) {
	text, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	return parseConfig(path, text, env, nil)
}

func readConfig(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &configError{[]string{path + ": no such file: write one, name one with --config FILE, or try `quorate dev`, which needs none"}}
	}
	if err != nil {
		return "", &configError{[]string{err.Error()}}
	}
	return string(text), nil
}

// parseConfig judges the text of a config, after override has changed what it says.
func parseConfig(path, text string, env lookup, override func(*Config)) (*Config, error) {
	src := &source{path: path, at: locate(text)}
	c := defaults()
	c.source = src
	meta, err := toml.Decode(text, c)
	if err != nil {
		src.syntax(err)
		return nil, src.err()
	}
	for _, key := range meta.Undecoded() {
		src.unknown(key)
	}
	if override != nil {
		override(c)
	}
	c.expand(src, env)
	c.check(src)
	return c, src.err()
}

var lastKey = regexp.MustCompile(`^toml: (?:line \d+ )?\(last key "([^"]+)"\): (.*)$`)

// syntax turns an error of the TOML decoder into a problem with its place.
func (s *source) syntax(err error) {
	var parse toml.ParseError
	if errors.As(err, &parse) {
		s.bad = append(s.bad, problemAt{position{parse.Position.Line, max(parse.Position.Col, 1)}, parse.Message})
		return
	}
	if m := lastKey.FindStringSubmatch(err.Error()); m != nil {
		key := strings.Split(m[1], ".")
		s.bad = append(s.bad, problemAt{s.at.anywhere(key), key[len(key)-1] + ": " + inWords(m[2])})
		return
	}
	s.problem(nil, "%s", strings.TrimPrefix(err.Error(), "toml: "))
}

var wrongType = regexp.MustCompile(`^incompatible types: TOML value has type (\w+); destination has type (\w+)$`)

// inWords says what a TOML value should have been in the words of TOML.
func inWords(message string) string {
	words := map[string]string{"slice": "a list", "map": "a table", "struct": "a table", "string": "a string", "integer": "a number", "float": "a number", "boolean": "true or false"}
	m := wrongType.FindStringSubmatch(message)
	if m == nil || words[m[1]] == "" || words[m[2]] == "" {
		return message
	}
	return fmt.Sprintf("want %s, not %s", words[m[2]], words[m[1]])
}

// unknown reports a key that the config does not know, and the nearest it does.
func (s *source) unknown(key toml.Key) {
	table := strings.Join(key[:len(key)-1], ".")
	if table != "" {
		table = " in [" + table + "]"
	}
	name := key[len(key)-1]
	hint := ""
	if near := nearest(name, knownKeys(reflect.TypeFor[Config](), key[:len(key)-1])); near != "" {
		hint = fmt.Sprintf(": did you mean %q?", near)
	}
	s.problem(key, "unknown key %q%s%s", name, table, hint)
}

// expand replaces variables in the values that may hold some.
func (c *Config) expand(src *source, env lookup) {
	secret := func(value *jobs.Secret, key ...string) {
		v, err := expand(value.Reveal(), env)
		if err != nil {
			src.problem(key, "%s: %v", strings.Join(key, "."), err)
		}
		*value = jobs.Secret(v)
	}
	for i := range c.Redlock.Masters {
		secret(&c.Redlock.Masters[i], "redlock", "masters")
	}
	secret(&c.Store.URL, "store", "url")
	secret(&c.Web.Token, "web", "token")
	for name, t := range c.Targets {
		secret(&t.URL, "targets", name, "url")
		c.Targets[name] = t
	}
	for name, j := range c.Jobs {
		for i := range j.Steps {
			h := j.Steps[i].HTTP
			if h == nil {
				continue
			}
			key := []string{"jobs", name, "steps", fmt.Sprint(i), "http"}
			url := jobs.Secret(h.URL)
			secret(&url, key...)
			h.URL = url.Reveal()
			for header, value := range h.Headers {
				secret(&value, key...)
				h.Headers[header] = value
			}
		}
	}
}

// check judges what single values cannot say for themselves.
func (c *Config) check(src *source) {
	if n := len(c.Redlock.Masters); n%2 == 0 {
		src.problem([]string{"redlock", "masters"}, "%d masters: want an odd number of independent Redis servers, five for a start: masters = [\"redis://host:6379\", …]", n)
	}
	if _, err := c.restartGuard(); err != nil {
		src.problem([]string{"redlock", "restart_guard"}, "%v", err)
	}
	if d := c.Redlock.MasterTimeout.D(); d < time.Millisecond || d > time.Second {
		src.problem([]string{"redlock", "master_timeout"}, "master_timeout %s: want 1ms to 1s", c.Redlock.MasterTimeout)
	}
	if f := c.Redlock.DriftFactor; f <= 0 || f >= 0.5 {
		src.problem([]string{"redlock", "drift_factor"}, "drift_factor %v: want a part of the TTL, like 0.01", f)
	}
	if scheme, _, ok := strings.Cut(c.Store.URL.Reveal(), ":"); !ok || !slices.Contains([]string{"postgres", "postgresql", "sqlite"}, scheme) {
		src.problem([]string{"store", "url"}, "[store] url: want postgres://user:password@host/database, or sqlite:FILE for a single machine")
	}
	if t := c.Web.Token.Reveal(); len(t) < 16 {
		src.problem([]string{"web", "token"}, "[web] token: want at least 16 characters that nobody guesses: token = \"file:/run/secrets/quorate-token\", or \"${QUORATE_TOKEN}\"")
	}
	if len(c.Jobs) == 0 {
		src.problem(nil, "no jobs: add a table [jobs.NAME] with a schedule and steps")
	}
	for name, j := range c.Jobs {
		j.Name = name
		for _, p := range j.Prepare() {
			src.problem(p.Key, "%s", p.Message)
		}
		c.checkTargets(src, j)
	}
}

func (c *Config) checkTargets(src *source, j *jobs.Job) {
	for i, step := range j.Steps {
		key := []string{"jobs", j.Name, "steps", fmt.Sprint(i)}
		if step.Target != "" {
			if _, ok := c.Targets[step.Target]; !ok {
				hint := "add [targets." + step.Target + "] with its url"
				if near := nearest(step.Target, slices.Collect(maps.Keys(c.Targets))); near != "" {
					hint = fmt.Sprintf("did you mean %q?", near)
				}
				src.problem(append(key, "target"), "step %q: no target %q is defined: %s", step.Name, step.Target, hint)
			}
		}
		for _, statement := range step.SQL {
			if err := steps.CheckSQL(statement); err != nil {
				src.problem(append(key, "sql"), "step %q: %v", step.Name, err)
			}
		}
	}
}

// restartGuard is how long a restarted master gets no vote; 0 leaves that to the
// longest TTL.
func (c *Config) restartGuard() (time.Duration, error) {
	switch c.Redlock.RestartGuard {
	case "auto":
		return 0, nil
	case "off":
		return -1, nil
	}
	d, err := jobs.ParseDuration(c.Redlock.RestartGuard)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("restart_guard %q: want \"auto\", \"off\" or a duration like \"30s\"", c.Redlock.RestartGuard)
	}
	return d, nil
}

// longestTTL is what a master can have forgotten at most.
func (c *Config) longestTTL() time.Duration {
	longest := time.Second
	for _, j := range c.Jobs {
		longest = max(longest, j.TTL.D())
	}
	return longest
}

func (c *Config) jobList() []*jobs.Job {
	all := make([]*jobs.Job, 0, len(c.Jobs))
	for _, j := range c.Jobs {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *jobs.Job) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (c *Config) targetURLs() map[string]jobs.Secret {
	urls := map[string]jobs.Secret{}
	for name, t := range c.Targets {
		urls[name] = t.URL
	}
	return urls
}
