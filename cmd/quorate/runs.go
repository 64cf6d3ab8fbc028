package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"quorate/web"
)

func runsCommand() *cobra.Command {
	var d door
	var f web.RunFilter
	var asJSON, follow bool
	cmd := &cobra.Command{
		Use: "runs", Short: "List the latest runs, newest first; or follow them as they end", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := d.client()
			if err != nil {
				return err
			}
			if follow {
				return followRuns(cmd.Context(), cmd.OutOrStdout(), client, f, asJSON)
			}
			runs, err := client.Runs(cmd.Context(), f)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), runs)
			}
			t := newTable(cmd.OutOrStdout(), runHead...)
			for _, r := range runs {
				t.row(runCells(r)...)
			}
			t.print()
			return nil
		},
	}
	d.flags(cmd)
	cmd.Flags().StringVar(&f.Job, "job", "", "only of the job `NAME`")
	cmd.Flags().StringVar(&f.Status, "status", "", "only with the `STATUS` running, succeeded, failed, skipped, missed or unknown")
	cmd.Flags().IntVar(&f.Limit, "limit", 20, "how many, 1000 at most")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with each run that begins or ends")
	return cmd
}

var runHead = []string{"RUN", "DUE", "JOB", "STATUS", "REPLICA", "VOTES", "LEFT", "TOOK", "FENCE", "ERROR"}

func runCells(r web.Run) []string {
	votes, left, took := "-", "-", "-"
	if e := r.Evidence; e != nil {
		votes = fmt.Sprintf("%d/%d", e.Votes, e.Masters)
		if r.Finished != nil {
			left = short(time.Duration(e.LeftMS) * time.Millisecond)
		}
	}
	if r.Started != nil && r.Finished != nil {
		took = short(r.Finished.Sub(*r.Started))
	}
	return []string{
		fmt.Sprint(r.ID), when(r.Due), r.Job, ending(r.Status, r.Reason),
		orDash(r.Replica), votes, left, took, numberOrDash(r.Fence), r.Error,
	}
}

// followRuns prints runs until it is interrupted, which is a good end.
func followRuns(ctx context.Context, out io.Writer, client *web.Client, f web.RunFilter, asJSON bool) error {
	widths := []int{6, 8, 16, 20, 12, 5, 6, 6, 5, 0}
	if !asJSON {
		fmt.Fprintln(out, paint(isTerminal(out), faint, padded(runHead, widths)))
	}
	err := client.Follow(ctx, f, func(r web.Run) error {
		if asJSON {
			return printJSON(out, []web.Run{r})
		}
		_, err := fmt.Fprintln(out, padded(runCells(r), widths))
		return err
	})
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// printJSON prints one object a line.
func printJSON[T any](out io.Writer, all []T) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, one := range all {
		if err := enc.Encode(one); err != nil {
			return err
		}
	}
	return nil
}

// indented prints text that may have several lines, as a block.
func indented(text, by string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = by + oneLine(line)
	}
	return strings.Join(lines, "\n")
}
