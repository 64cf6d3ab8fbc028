package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"quorate/jobs"
)

// A Config is what config.toml says, over the defaults.
type Config struct {
	Include jobs.Strings `toml:"include"`

	Replica struct {
		Name         string        `toml:"name"`
		Listen       string        `toml:"listen"`
		Journal      string        `toml:"journal"`
		DrainTimeout jobs.Duration `toml:"drain_timeout"`
	} `toml:"replica"`

	Redlock struct {
		Masters       []jobs.Secret `toml:"masters"`
		TTL           jobs.Duration `toml:"ttl"`
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
	c.Redlock.TTL = jobs.Duration(jobs.DefaultTTL)
	c.Redlock.MasterTimeout = jobs.Duration(50 * time.Millisecond)
	c.Redlock.DriftFactor = 0.01
	c.Redlock.RestartGuard = "auto"
	return c
}

// fault is an error of something that the config names at this key: it says where,
// and how to mend it, unless err does.
func (c *Config) fault(err error, mend string, key ...string) error {
	if mend != "" {
		mend = ": " + mend
	}
	return mistake(c.source.of(key), "[%s]: %v%s", key[0], err, mend)
}

// thisWorld is what a config may refer to on this machine.
func thisWorld() world { return world{os.LookupEnv, os.DirFS("/")} }

// loadConfig reads and judges a config file. What it returns can be used as it is.
func loadConfig(path string, w world) (*Config, error) {
	text, err := readConfig(path, w)
	if err != nil {
		return nil, err
	}
	return parseConfig(path, text, w, nil)
}

func readConfig(path string, w world) (string, error) {
	text, err := w.read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", mistake(place{file: path}, "no such file: write one, name one with --config FILE, or try `quorate dev`, which needs none")
	}
	if err != nil {
		return "", mistake(place{file: path}, "%v", err)
	}
	return text, nil
}

// parseConfig judges the text of a config, after override has changed what it
// says. The config that it returns with an error is good for looking at alone.
func parseConfig(path, text string, w world, override func(*Config)) (*Config, error) {
	c := defaults()
	c.source = &source{places: map[string]place{}}
	tree, at := c.source.parse(path, text)
	if tree == nil {
		return c, c.source.err()
	}
	c.source.know(path, at)
	c.source.include(tree, w)
	c.source.decode(tree, reflect.ValueOf(c).Elem(), nil)
	if override != nil {
		override(c)
	}
	c.source.expand(reflect.ValueOf(c).Elem(), w, nil)
	c.check()
	return c, c.source.err()
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
