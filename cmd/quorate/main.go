// Command quorate runs every scheduled job once, on any number of replicas.
//
// This package is where the parts are opened, handed to each other and closed, and
// where people type. One file holds one command; config.go reads config.toml;
// table.go draws. What may live here: wiring, flags, text for a terminal. What may
// not: a decision about a tick, SQL, a Redis command.
//
// Exit codes: 0 done; 1 it was done and did not succeed, like `run --wait` of a job
// that failed; 2 it could not be done: a wrong config, a wrong flag, a server that
// cannot be reached.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"quorate/redlock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	redlock.Silence() // the log and the errors say it in our words
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var config *configError
	var unsuccessful *unsuccessfulError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &unsuccessful):
		return 1
	case errors.As(err, &config):
		fmt.Fprintln(stderr, err)
	default:
		fmt.Fprintln(stderr, "quorate:", err)
	}
	return 2
}

// An unsuccessfulError ends the program with 1; what happened has been said.
type unsuccessfulError struct{ what string }

func (e *unsuccessfulError) Error() string { return e.what }

const long = `quorate runs every scheduled job once, on any number of replicas.

Each replica ticks; a quorum of five Redis masters lets one replica through;
Postgres has the last word. Start with:

  quorate dev      everything in one process, nothing to install`

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "quorate", Long: long, Version: version(),
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(
		devCommand(), serveCommand(), checkCommand(), migrateCommand(),
		jobsCommand(), runCommand(), runsCommand(), showCommand(), planCommand(), schemaCommand(), versionCommand(),
	)
	return root
}

// configFlag adds --config, which is config.toml here unless said otherwise.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "config.toml", "the config `FILE`")
}
