package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"quorate/web"
)

func showCommand() *cobra.Command {
	var d door
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show RUN", Short: "Show one run: its steps, what they said, and how good its lock was", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || id <= 0 {
				return fmt.Errorf("%q is not the number of a run: `quorate runs` lists them", args[0])
			}
			client, err := d.client()
			if err != nil {
				return err
			}
			r, err := client.Run(cmd.Context(), id)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), []web.Run{r})
			}
			printRun(cmd.OutOrStdout(), r)
			return nil
		},
	}
	d.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func printRun(out io.Writer, r web.Run) {
	label := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %s  %s\n", paint(isTerminal(out), faint, fmt.Sprintf("%-8s", name)), oneLine(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(out, "run %d of %s, due %s (%s, attempt %d)\n", r.ID, r.Job, r.Due.Format(time.RFC3339Nano), r.Trigger, r.Attempt)
	label("status", "%s", ending(r.Status, r.Reason))
	if r.Error != "" {
		label("error", "%s", r.Error)
	}
	if r.Replica != "" {
		label("replica", "%s, revision %s", r.Replica, r.Revision)
	}
	if r.Started != nil {
		took := "still running"
		if r.Finished != nil {
			took = "took " + short(r.Finished.Sub(*r.Started))
		}
		label("started", "%s, %s after it was due, %s", r.Started.Format(time.RFC3339Nano), short(r.Started.Sub(r.Due)), took)
	}
	if e := r.Evidence; e != nil {
		ms := func(n int64) string { return short(time.Duration(n) * time.Millisecond) }
		label("lock", "%s under fence %d, granted by %d of %d masters for %s", r.Lock, r.Fence, e.Votes, e.Masters, ms(e.GrantedMS))
		if r.Finished != nil {
			label("validity", "%s left at the end, %s at the lowest, %d extensions", ms(e.LeftMS), ms(e.LowestMS), e.Extensions)
		}
	}
	for _, s := range r.Steps {
		took := ""
		if s.Started != nil && s.Finished != nil {
			took = ", took " + short(s.Finished.Sub(*s.Started))
		}
		if s.Kind == "sql" {
			took += fmt.Sprintf(", %d rows", s.Rows)
		}
		label(fmt.Sprintf("step %d", s.Index+1), "%s (%s): %s%s", s.Name, s.Kind, s.Status, took)
		if s.Error != "" {
			label("", "%s", s.Error)
		}
		if s.Output != "" {
			fmt.Fprintln(out, indented(s.Output, "            "))
		}
	}
}
