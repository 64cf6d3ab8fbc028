package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
	"quorate/redlock"
	"quorate/scheduler"
	"quorate/store"
	"quorate/store/journal"
	"quorate/store/postgres"
	"quorate/store/sqlite"
	"quorate/web"
)

// parts are what a replica is made of, opened in this order and closed in reverse.
type parts struct {
	store   store.Store
	targets *steps.Targets
	locker  *redlock.Locker
	journal *journal.Journal // nil: none
}

const mendStore = "start it, or mend the url"

// openStore opens the store that the config names.
func openStore(ctx context.Context, c *Config) (st store.Store, err error) {
	url := c.Store.URL.Reveal()
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		st, err = sqlite.Open(ctx, path)
	} else {
		st, err = postgres.Open(ctx, url)
	}
	if err != nil {
		return nil, c.fault(err, mendStore, "store", "url") // and not a nil of their types
	}
	return st, nil
}

// openParts opens everything that a replica works with, and finds out before the
// first tick what a replica cannot do without.
func openParts(ctx context.Context, c *Config) (_ *parts, err error) {
	p := &parts{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.store, err = openStore(ctx, c); err != nil {
		return nil, err
	}
	if err = upToDate(ctx, p.store); err != nil {
		return nil, c.fault(err, "see quorate migrate status", "store", "url")
	}
	if p.targets, err = openTargets(ctx, c); err != nil {
		return nil, err
	}
	if p.locker, err = openLocker(c); err != nil {
		return nil, c.fault(err, "mend the list", "redlock", "masters")
	}
	if _, err = p.locker.Check(ctx); err != nil {
		return nil, c.fault(err, "start them, or mend the list", "redlock", "masters")
	}
	return p, nil
}

// openTargets knows the databases of SQL steps, and that each step's statements
// can run on the kind of database that its target is. It does not dial.
func openTargets(ctx context.Context, c *Config) (*steps.Targets, error) {
	targets, err := steps.Open(ctx, c.targetURLs())
	if err != nil {
		return nil, c.fault(err, "mend the url", "targets")
	}
	for _, j := range c.jobList() {
		for i, step := range j.Steps {
			if step.Kind() != "sql" {
				continue
			}
			if err := targets.CheckStep(step); err != nil {
				return nil, c.fault(err, "mend the step", "jobs", j.Name, "steps", fmt.Sprint(i), "sql")
			}
		}
	}
	return targets, nil
}

// openJournal opens the file that the config names, if it names one.
func (p *parts) openJournal(c *Config, log *slog.Logger) (err error) {
	if c.Replica.Journal == "" {
		return nil
	}
	var torn int
	if p.journal, torn, err = journal.Open(c.Replica.Journal); err != nil {
		return c.fault(err, "", "replica", "journal")
	}
	if torn > 0 {
		log.Warn("the end of the journal was torn: this replica died while it wrote there", "bytes", torn, "kept", c.Replica.Journal+".torn")
	}
	return nil
}

func (p *parts) close() {
	if p.journal != nil {
		p.journal.Close()
	}
	if p.locker != nil {
		p.locker.Close()
	}
	p.targets.Close()
	if p.store != nil {
		p.store.Close()
	}
}

// upToDate migrates the store where it is behind. One that is not needs no right
// to change the schema.
func upToDate(ctx context.Context, st store.Store) error {
	status, err := st.Status(ctx)
	if err != nil {
		return err
	}
	if status.Applied >= status.Known {
		return nil
	}
	return st.Migrate(ctx)
}

func openLocker(c *Config) (*redlock.Locker, error) {
	guard, err := c.restartGuard()
	if err != nil {
		return nil, err
	}
	urls := make([]string, len(c.Redlock.Masters))
	for i, m := range c.Redlock.Masters {
		urls[i] = m.Reveal()
	}
	return redlock.New(redlock.Options{
		MasterTimeout: c.Redlock.MasterTimeout.D(),
		DriftFactor:   c.Redlock.DriftFactor,
		MinValidity:   c.Redlock.MinValidity.D(),
		RestartGuard:  guard,
		MaxTTL:        c.longestTTL(),
	}, urls...)
}

// newScheduler returns the scheduler of one replica over these parts.
func (p *parts) newScheduler(c *Config, name string, log *slog.Logger, ended func(jobs.Run)) (*scheduler.Scheduler, error) {
	return scheduler.New(scheduler.Config{
		Replica: name, Jobs: c.jobList(), Locker: p.locker, Store: p.store, Journal: p.journal,
		Steps: &steps.Executor{Targets: p.targets}, Log: log, Ended: ended,
	})
}

// runAll runs replicas and their door until ctx ends or one of them fails, and lets
// runs finish. The door stays open until the last replica has stopped.
func runAll(ctx context.Context, drain time.Duration, door *web.Server, l net.Listener, replicas ...*scheduler.Scheduler) error {
	open, shut := context.WithCancel(context.WithoutCancel(ctx))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, len(replicas)+1)
	var answering, ticking sync.WaitGroup
	answering.Go(func() {
		defer stop()
		failed <- door.Serve(open, l)
	})
	for _, r := range replicas {
		ticking.Go(func() {
			defer stop()
			failed <- r.Run(ctx, drain)
		})
	}
	ticking.Wait()
	shut()
	answering.Wait()
	close(failed)
	var all error
	for err := range failed {
		all = errors.Join(all, err)
	}
	return all
}
