package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func checkCommand() *cobra.Command {
	var path string
	var next int
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what is wrong with a config, or when its jobs are due",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path, thisWorld())
			if err != nil {
				return err
			}
			targets, err := openTargets(cmd.Context(), c)
			if err != nil {
				return err
			}
			targets.Close()
			printNext(cmd, c, next)
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().IntVar(&next, "next", 3, "how many ticks to show for each job")
	return cmd
}

func printNext(cmd *cobra.Command, c *Config, next int) {
	t := newTable(cmd.OutOrStdout(), "JOB", "SCHEDULE", "NEXT")
	for _, j := range c.jobList() {
		zone := time.UTC
		if j.Timezone != "" {
			zone, _ = time.LoadLocation(j.Timezone) // was loaded before
		}
		var due []string
		at := time.Now()
		for range next {
			if at = j.Schedule().Next(at); at.IsZero() {
				break
			}
			due = append(due, at.In(zone).Format("Mon 2 Jan 15:04:05 MST"))
		}
		schedule := j.Schedule().String()
		if j.Schedule().Never() {
			schedule = "by hand"
		}
		t.row(j.Name, schedule, strings.Join(due, ", "))
	}
	t.print()
}
