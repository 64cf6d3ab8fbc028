package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"quorate/jobs"
	"quorate/jobs/steps"
	"quorate/redlock/embedded"
	"quorate/scheduler"
	"quorate/web"
)

// sample is the config.toml of the repository, for those who start the binary in an
// empty folder. A test keeps the two alike.
//
//go:embed sample.toml
var sample string

const (
	devMasters  = 5
	devReplicas = 3
	devListen   = "127.0.0.1:8080"
	devDrain    = 5 * time.Second
)

// A devSession is what `quorate dev` was asked for.
type devSession struct {
	config, listen, state string
	fresh                 bool
	out                   io.Writer
}

func devCommand() *cobra.Command {
	var d devSession
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process: five masters, a store, three replicas",
		Long: `Run everything in one process, with nothing to install: five embedded masters,
SQLite as the store and as every SQL target, and three replicas that compete for
each tick of config.toml (or of the built-in sample, where there is none here).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.out = cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&d.config, "config", "c", "", "the config `FILE` (default: config.toml here, or else the sample)")
	cmd.Flags().StringVar(&d.listen, "listen", "", "where to answer HTTP, `ADDR` (default "+devListen+", or a free port)")
	cmd.Flags().BoolVar(&d.fresh, "fresh", false, "forget what earlier sessions did")
	stateFlag(cmd, &d.state)
	return cmd
}

func (d *devSession) run(ctx context.Context) error {
	if err := d.openState(); err != nil {
		return err
	}
	l, err := d.listenSomewhere()
	if err != nil {
		return err
	}
	at := address{URL: "http://" + l.Addr().String(), Token: d.token()}

	masters, err := embedded.Start(devMasters)
	if err != nil {
		return err
	}
	defer masters.Close()
	c, source, err := d.load(at, masters.URLs())
	if err != nil {
		return err
	}
	p, err := openParts(ctx, c)
	if err != nil {
		return err
	}
	defer p.close()
	for name := range c.Targets {
		if err := p.targets.Prepare(ctx, name); err != nil {
			return err
		}
	}
	if err := openShop(ctx, p.targets, c); err != nil {
		return err
	}
	if err := d.publish(at); err != nil {
		return err
	}

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	var door *web.Server
	lines := newTickLines(d.out, c)
	replicas := make([]*scheduler.Scheduler, devReplicas)
	for i := range replicas {
		replicas[i], err = p.newScheduler(c, fmt.Sprintf("r%d", i+1), log, func(run jobs.Run) {
			door.Ended(run)
			lines.print(run)
		})
		if err != nil {
			return err
		}
	}
	door, err = web.New(web.Config{
		Scheduler: replicas[0], Store: p.store, Token: at.Token,
		Hosts: []string{l.Addr().String()}, Version: version(), Log: log,
	})
	if err != nil {
		return err
	}
	d.greet(at, source, masters.URLs(), c, door.SignInLink(at.URL))
	return runAll(ctx, devDrain, door, l, replicas...)
}

// load reads the config and puts the embedded servers in the place of its own.
func (d *devSession) load(at address, masters []string) (c *Config, source string, err error) {
	path, text := d.config, ""
	if path == "" {
		path = "config.toml"
	}
	w := thisWorld()
	text, err = readConfig(path, w)
	if _, statErr := os.Stat(path); errors.Is(statErr, fs.ErrNotExist) && d.config == "" {
		path, text, err = "the built-in sample", sample, nil
	}
	if err != nil {
		return nil, "", err
	}
	w.env = func(name string) (string, bool) {
		if name == "QUORATE_URL" {
			return at.URL, true
		}
		return os.LookupEnv(name)
	}
	c, err = parseConfig(path, text, w, func(c *Config) {
		c.Redlock.Masters = nil
		for _, url := range masters {
			c.Redlock.Masters = append(c.Redlock.Masters, jobs.Secret(url))
		}
		// Nothing here is as far away as a server, nor as quick when the machine is busy.
		c.Redlock.MasterTimeout = jobs.Duration(500 * time.Millisecond)
		// The masters were started with the replicas and end with them, so none of
		// them can have forgotten a lock that somebody still holds.
		c.Redlock.RestartGuard = "off"
		c.Store.URL = jobs.Secret("sqlite:" + filepath.Join(d.state, "store.db"))
		c.Web.Token = at.Token
		for name := range c.Targets {
			c.Targets[name] = Target{URL: jobs.Secret("sqlite:" + filepath.Join(d.state, "target-"+name+".db"))}
		}
	})
	return c, path, err
}

// openState makes the folder of the state, and empties it if asked to; only of what
// is ours, as the folder may be anywhere.
func (d *devSession) openState() error {
	if err := os.MkdirAll(d.state, 0o700); err != nil {
		return err
	}
	if !d.fresh {
		return nil
	}
	for _, ours := range []string{"store.db*", "target-*.db*", addressFile} {
		files, _ := filepath.Glob(filepath.Join(d.state, ours)) // the patterns are well formed
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *devSession) listenSomewhere() (net.Listener, error) {
	if d.listen != "" {
		l, err := net.Listen("tcp", d.listen)
		if err != nil {
			return nil, fmt.Errorf("--listen: %w", err)
		}
		return l, nil
	}
	if l, err := net.Listen("tcp", devListen); err == nil {
		return l, nil
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// token is that of the last session, so that a shell that has it can go on.
func (d *devSession) token() jobs.Secret {
	if last, err := readAddress(d.state); err == nil && last.Token != "" {
		return last.Token
	}
	return jobs.Secret(rand.Text())
}

// publish leaves the address and the token where the other commands find them.
func (d *devSession) publish(at address) error {
	text, err := json.Marshal(map[string]string{"url": at.URL, "token": at.Token.Reveal()})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.state, addressFile), append(text, '\n'), 0o600)
}

func (d *devSession) greet(at address, source string, masters []string, c *Config, signIn string) {
	faintly := func(s string) string { return paint(isTerminal(d.out), faint, s) }
	ports := make([]string, len(masters))
	for i, m := range masters {
		ports[i] = m[strings.LastIndexByte(m, ':'):]
	}
	fmt.Fprintf(d.out, "quorate dev: %d replicas, %d masters and SQLite in this process. Ctrl-C stops it.\n\n", devReplicas, devMasters)
	fmt.Fprintf(d.out, "  %s  %s\n", faintly("page   "), signIn)
	fmt.Fprintf(d.out, "  %s  %s/api/v1   %s\n", faintly("api    "), at.URL, faintly("token in "+filepath.Join(d.state, addressFile)))
	fmt.Fprintf(d.out, "  %s  127.0.0.1 %s\n", faintly("masters"), strings.Join(ports, " "))
	fmt.Fprintf(d.out, "  %s  %d of %s\n", faintly("jobs   "), len(c.Jobs), source)
	hint := ""
	if d.state != defaultState {
		hint = " --state " + d.state
	}
	fmt.Fprintf(d.out, "  %s  quorate runs --follow%s\n\n", faintly("try    "), hint)
}

// tickLines prints a line for each tick that has ended: who won it, with how many
// votes, and how much longer the lock could have been trusted.
type tickLines struct {
	out    io.Writer
	colour bool
	widths []int

	mu     sync.Mutex
	headed bool
}

func newTickLines(out io.Writer, c *Config) *tickLines {
	longest := len("JOB")
	for name := range c.Jobs {
		longest = max(longest, len(name))
	}
	return &tickLines{out: out, colour: isTerminal(out), widths: []int{8, longest, 3, 5, 6, 6, 0}}
}

func (t *tickLines) print(run jobs.Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.headed {
		t.headed = true
		fmt.Fprintln(t.out, paint(t.colour, faint, padded([]string{"DUE", "JOB", "WON", "VOTES", "LEFT", "TOOK", "RESULT"}, t.widths)))
	}
	cells := []string{run.Due.Local().Format(time.TimeOnly), run.Job, "-", "-", "-", "-"}
	if e := run.Evidence; e.Masters > 0 {
		cells = append(cells[:2], run.Replica, fmt.Sprintf("%d/%d", e.Votes, e.Masters), short(e.Left), short(run.Finished.Sub(run.Started)))
	}
	line := padded(append(cells, "x"), t.widths)
	result := paint(t.colour, statusColour(run.Status), ending(string(run.Status), string(run.Reason)))
	fmt.Fprintln(t.out, strings.TrimSuffix(line, "x")+result+paint(t.colour, faint, oneLine(afterword(run))))
}

// afterword is what is worth saying about a run besides how it ended.
func afterword(run jobs.Run) string {
	var words []string
	if run.Trigger != jobs.TriggerSchedule {
		words = append(words, string(run.Trigger))
	}
	if n := run.Evidence.Extensions; n > 0 {
		words = append(words, fmt.Sprintf("%d extensions", n))
	}
	if run.Error != "" {
		words = append(words, run.Error)
	}
	if len(words) == 0 {
		return ""
	}
	return "  " + strings.Join(words, "; ")
}

// openShop makes the tables that the sample's inventory job works on, by a step
// like any other: its marker sees to it that they are filled once.
func openShop(ctx context.Context, targets *steps.Targets, c *Config) error {
	if _, ok := c.Targets["shop"]; !ok {
		return nil
	}
	job := &jobs.Job{Name: "open-shop", Timeout: jobs.Duration(time.Minute), Steps: []jobs.Step{{
		Name: "tables", Target: "shop", SQL: jobs.Strings{
			"CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, units INTEGER NOT NULL CHECK (units >= 0))",
			"CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, sku TEXT NOT NULL, quantity INTEGER NOT NULL, placed TEXT NOT NULL, run_id INTEGER)",
			"INSERT INTO stock VALUES ('apple', 1000000), ('pear', 1000000), ('plum', 1000000)",
		},
	}}}
	outcome := (&steps.Executor{Targets: targets}).Execute(ctx, steps.Hold{
		Job:      job,
		Run:      jobs.Run{Job: job.Name, Lock: job.Name, Due: time.Unix(0, 0).UTC(), Attempt: 1, Fence: 1},
		Validity: func() time.Duration { return time.Minute },
	})
	if outcome.Status != jobs.Succeeded {
		return fmt.Errorf("open the sample's shop: %s", outcome.Error)
	}
	return nil
}
