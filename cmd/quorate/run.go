package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"quorate/jobs"
	"quorate/web"
)

func runCommand() *cobra.Command {
	var d door
	var wait, asJSON bool
	var words []string
	cmd := &cobra.Command{
		Use: "run JOB", Short: "Run a job now; with --wait, until it has ended", Args: cobra.ExactArgs(1),
		Long: `Run a job now, like any other tick: under the same lock, with a row of its own.

Exit code 1 says that the run did not succeed, or did not begin.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := d.client()
			if err != nil {
				return err
			}
			params, err := given(words)
			if err != nil {
				return err
			}
			r, err := client.RunNow(cmd.Context(), args[0], params)
			if err != nil {
				return err
			}
			if wait {
				if r, err = untilEnded(cmd.Context(), client, r); err != nil {
					return err
				}
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), []web.Run{r})
			} else {
				printRun(cmd.OutOrStdout(), r)
			}
			if status := jobs.Status(r.Status); err == nil && status != jobs.Succeeded && status != jobs.Running {
				return &unsuccessfulError{fmt.Sprintf("run %d: %s", r.ID, r.Status)}
			}
			return err
		},
	}
	d.flags(cmd)
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, "wait for the end of the run")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	cmd.Flags().StringArrayVarP(&words, "param", "p", nil, "a parameter of the job, `NAME=VALUE`; as often as there are some")
	return cmd
}

// given reads NAME=VALUE, a word for each parameter.
func given(words []string) (map[string]any, error) {
	params := map[string]any{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if _, twice := params[name]; !ok || twice {
			return nil, fmt.Errorf("--param %q: want NAME=VALUE, and each name once", word)
		}
		params[name] = value
	}
	return params, nil
}

func untilEnded(ctx context.Context, client *web.Client, r web.Run) (web.Run, error) {
	beat := time.NewTicker(200 * time.Millisecond)
	defer beat.Stop()
	for {
		now, err := client.Run(ctx, r.ID)
		if err != nil || jobs.Status(now.Status).Final() {
			return now, err
		}
		select {
		case <-ctx.Done():
			return now, fmt.Errorf("run %d goes on: %w", r.ID, context.Cause(ctx))
		case <-beat.C:
		}
	}
}
