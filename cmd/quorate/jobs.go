package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func jobsCommand() *cobra.Command {
	var d door
	var asJSON bool
	cmd := &cobra.Command{
		Use: "jobs", Short: "List the jobs, when they are due next and how they went last", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := d.client()
			if err != nil {
				return err
			}
			all, err := client.Jobs(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), all)
			}
			t := newTable(cmd.OutOrStdout(), "JOB", "NEXT", "LAST", "ENDED", "SCHEDULE")
			for _, j := range all {
				next, last, ended := "by hand", "-", "-"
				if len(j.Next) > 0 {
					next = "in " + short(time.Until(j.Next[0]).Round(time.Second))
				}
				if r := j.Latest; r != nil {
					last = when(r.Due)
					ended = ending(r.Status, r.Reason)
				}
				t.row(j.Name, next, last, ended, j.Schedule)
			}
			t.print()
			return nil
		},
	}
	d.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

// when prints an instant by the clock on this wall, with its day if that is not
// today.
func when(t time.Time) string {
	t = t.Local()
	if now := time.Now(); t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func numberOrDash(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
