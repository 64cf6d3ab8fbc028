package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"

	"quorate/jobs"
	"quorate/jobs/steps"
	"quorate/web"
)

func serveCommand() *cobra.Command {
	var path, name, listen string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a replica",
		Long: `Run a replica: tick, take locks from the masters, run jobs, record them.

Start as many as you like with the same config. SIGTERM lets runs finish for
drain_timeout, then cancels them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path, thisWorld())
			if err != nil {
				return err
			}
			if name != "" {
				c.Replica.Name = name
			}
			if listen != "" {
				c.Replica.Listen = listen
			}
			return serve(cmd.Context(), c, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&name, "name", "", "the `NAME` of this replica (default: [replica] name, or host and process)")
	cmd.Flags().StringVar(&listen, "listen", "", "where to answer HTTP, `ADDR` like 127.0.0.1:8080 (default: [replica] listen)")
	return cmd
}

func serve(ctx context.Context, c *Config, log *slog.Logger) error {
	if c.Replica.Name == "" {
		c.Replica.Name = processName()
	}
	p, err := openParts(ctx, c)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.openJournal(c, log); err != nil {
		return err
	}
	if err := checkTargets(ctx, c, p.targets, log); err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.Replica.Listen)
	if err != nil {
		return fmt.Errorf("[replica] listen: %w: if another replica runs on this machine, give this one --listen 127.0.0.1:0", err)
	}
	// The scheduler tells the door of each run that ended; the door is made of the
	// scheduler. Nothing ticks before both are there.
	var door *web.Server
	replica, err := p.newScheduler(c, c.Replica.Name, log, func(run jobs.Run) { door.Ended(run) })
	if err != nil {
		return err
	}
	door, err = web.New(web.Config{
		Scheduler: replica, Store: p.store, Token: c.Web.Token,
		Hosts: append(c.Web.AllowedHosts, l.Addr().String()), Version: version(), Log: log,
	})
	if err != nil {
		return err
	}
	log.Info("listening", "replica", c.Replica.Name, "url", "http://"+reachable(l.Addr().String()))
	return runAll(ctx, c.Replica.DrainTimeout.D(), door, l, replica)
}

// checkTargets refuses targets without our guard tables, which only a person can
// mend. One that cannot be reached may come back, and the jobs that do without it
// must not wait.
func checkTargets(ctx context.Context, c *Config, targets *steps.Targets, log *slog.Logger) error {
	for name := range c.Targets {
		err := targets.Check(ctx, name)
		if errors.Is(err, steps.ErrUnprepared) {
			return c.fault(err, "", "targets", name)
		}
		if err != nil {
			log.Warn("target is away", "target", name, "error", err)
		}
	}
	return nil
}

// reachable is an address that somebody on this machine can use: that of loopback
// where all of them are listened on.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// processName tells this process from others on the same host.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "replica"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
