//go:build unix

// Command lock measures quorate/redlock beside redsync: in one process, on the
// same five Redis servers, in turns.
//
//	go run ./lock                      # everything, under three minutes
//	go run ./lock -case c16,held -time 2s -rounds 9
//	go run ./lock -case c256 -cpuprofile cpu.out -memprofile mem.out
//
// It starts five redis-server processes from PATH (loopback, no persistence), and
// stops them. In every round each subject of each case has its turn, one right
// after the other and another one first each time, so that what else the machine
// does meets all of them alike; a ratio is taken within a round. What is printed is
// the median (lowest–highest) of the rounds.
//
// What it promises: the subjects get the same keys, TTL, goroutines and servers,
// and a fresh client in each turn, as its documentation sets it up. What it does
// not: absolute numbers that mean anything elsewhere. Clients and servers share
// the machine's processors, and there is no network between them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"quorate/redlock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "lock:", err)
		stop()
		os.Exit(1)
	}
}

type config struct {
	rounds     int
	time       time.Duration
	calm       float64
	patience   time.Duration
	cases      []scenario
	json       bool
	cpuProfile string
	memProfile string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	redlock.Silence() // one case refuses connections on purpose
	masters, err := startMasters(5)
	if err != nil {
		return err
	}
	defer stopMasters(masters)

	finish, err := profile(cfg.cpuProfile, cfg.memProfile)
	if err != nil {
		return err
	}
	st := &stage{masters: masters, time: cfg.time,
		warmup: min(cfg.time, 100*time.Millisecond), settle: min(cfg.time, 200*time.Millisecond),
		calm: cfg.calm, patience: cfg.patience}
	report := newReport(cfg, masters)
	if err := errors.Join(report.measure(ctx, st, cfg.cases, stderr), finish()); err != nil {
		return err
	}
	if cfg.json {
		return report.writeJSON(stdout)
	}
	return report.writeTable(stdout)
}

func parse(args []string, stderr io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("lock", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&cfg.rounds, "rounds", 7, "how often each subject has its turn")
	flags.DurationVar(&cfg.time, "time", time.Second, "how long a turn is measured")
	flags.Float64Var(&cfg.calm, "calm", 1, "play a turn again if others used more than this share of the machine's CPU meanwhile (Linux)")
	flags.DurationVar(&cfg.patience, "patience", 10*time.Minute, "how long to do so in all")
	names := flags.String("case", "", "only these cases, separated by commas: "+strings.Join(caseNames(scenarios()), ", "))
	flags.BoolVar(&cfg.json, "json", false, "print every round as JSON instead of the table")
	flags.StringVar(&cfg.cpuProfile, "cpuprofile", "", "write a CPU profile of quorate in one case to this file; nobody else is measured")
	flags.StringVar(&cfg.memProfile, "memprofile", "", "likewise, of allocations")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if cfg.rounds < 1 || cfg.time <= 0 {
		return cfg, fmt.Errorf("-rounds %d -time %s: want more than none", cfg.rounds, cfg.time)
	}
	var err error
	if cfg.cases, err = choose(scenarios(), *names); err != nil {
		return cfg, err
	}
	if cfg.cpuProfile != "" || cfg.memProfile != "" {
		if len(cfg.cases) != 1 {
			return cfg, errors.New("a profile is of one case: name it with -case")
		}
		cfg.cases[0] = cfg.cases[0].onlyOurs()
	}
	return cfg, nil
}

// choose returns the named scenarios in the order of all, and all if none is named.
func choose(all []scenario, names string) ([]scenario, error) {
	if names == "" {
		return all, nil
	}
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if !slices.Contains(caseNames(all), name) {
			return nil, fmt.Errorf("-case %q: there are %s", name, strings.Join(caseNames(all), ", "))
		}
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(wanted, s.name) }), nil
}
