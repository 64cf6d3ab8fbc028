//go:build unix

// Command store measures how fast the Postgres store claims and finishes runs,
// beside bare inserts into the same server, in turns.
//
//	go run ./store                       # under two minutes
//	go run ./store -rounds 9 -time 3s
//	go run ./store -history 10000000     # load so many runs, and time what people ask
//
// It starts a Postgres of its own (PATH, pg_config) with fsync and
// synchronous_commit on, and removes it. In every round each subject has its turn,
// one right after the other; a ratio is taken within a round. What is printed is
// the median (lowest–highest) of the rounds.
//
// What it promises: the server acknowledges nothing that is not on the disk. What
// it does not: absolute numbers that mean anything elsewhere. Client and server
// share the machine's processors, and there is no network between them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"quorate/store/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "store:", err)
		stop()
		os.Exit(1)
	}
}

// A bench is what a turn is played on.
type bench struct {
	url    string
	server *server // nil: somebody else's
	rounds int
	time   time.Duration // how long a turn is measured
	warmup time.Duration // before that, unmeasured
	only   string        // measure what has this in its name, and compare nothing
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	b := &bench{}
	flags := flag.NewFlagSet("store", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&b.rounds, "rounds", 5, "how often each subject has its turn")
	flags.DurationVar(&b.time, "time", 2*time.Second, "how long a turn is measured")
	flags.StringVar(&b.url, "url", "", "use this database, and leave in it what was written; default: a server of our own")
	flags.StringVar(&b.only, "only", "", "measure only what has this in its name, like \"256 callers\"")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0 || b.rounds < 1 || b.time <= 0:
		return fmt.Errorf("want no arguments, and -rounds and -time above zero")
	}
	b.warmup = b.time / 2
	if b.url == "" {
		s, err := startServer(ctx)
		if err != nil {
			return err
		}
		defer s.stop()
		b.server, b.url = s, s.url.String()
	}
	if err := migrate(ctx, b.url); err != nil {
		return err
	}
	return measure(ctx, b, stdout, stderr)
}

func migrate(ctx context.Context, url string) error {
	s, err := postgres.Open(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Migrate(ctx)
}
