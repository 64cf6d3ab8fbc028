package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"quorate/jobs"
)

func checkCommand() *cobra.Command {
	var path string
	var next int
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what is wrong with a config, or when its jobs are due",
		Long: `Say what is wrong with a config, every mistake with its line and column, or when
its jobs are due, and on which days of the next year the clock is changed at one
of their times. Nothing is dialed.

Exit code 0: the config is good. 1: it is good, there are warnings, and --strict.
2: it is not.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := newReport(path, thisWorld(), time.Now(), next)
			if asJSON {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(r); err != nil {
					return err
				}
			} else {
				r.print(cmd.OutOrStdout())
			}
			for _, p := range r.warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), p)
			}
			if r.err == nil && strict && len(r.warnings) > 0 {
				return &unsuccessfulError{"warnings"}
			}
			return r.err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().IntVarP(&next, "next", "n", 3, "how many ticks to show for each job")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit code 1 where there are warnings")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON object")
	return cmd
}

// A report is what `check` has to say. Its JSON names are a promise.
type report struct {
	Problems []problemJSON `json:"problems"`
	Jobs     []dueJSON     `json:"jobs"`

	warnings []problem
	err      error
}

type problemJSON struct {
	Severity string `json:"severity"` // error or warning
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Key      string `json:"key,omitempty"`
	Message  string `json:"message"`
}

type dueJSON struct {
	Job          string       `json:"job"`
	Schedule     string       `json:"schedule,omitempty"` // none: by hand only
	Timezone     string       `json:"timezone"`
	Next         []time.Time  `json:"next"` // in that zone
	ClockChanges []changeJSON `json:"clock_changes"`
}

type changeJSON struct {
	At   time.Time   `json:"at"`
	Kind string      `json:"kind"` // gap or fold
	Wall string      `json:"wall"` // the time that does not exist, or comes twice
	More int         `json:"more"` // such times besides
	Due  []time.Time `json:"due"`  // when it runs instead

	job string
}

func newReport(path string, w world, now time.Time, next int) *report {
	r := &report{Problems: []problemJSON{}, Jobs: []dueJSON{}}
	c, err := loadConfig(path, w)
	r.err = err
	var bad *configError
	if errors.As(err, &bad) {
		r.add("error", bad.problems)
		return r
	}
	c.doubt(now)
	r.warnings = c.source.sorted(true)
	r.add("warning", r.warnings)
	for _, j := range c.jobList() {
		d := dueJSON{Job: j.Name, Schedule: j.Schedule().String(), Timezone: j.Zone().String(), Next: []time.Time{}, ClockChanges: []changeJSON{}}
		for t := j.Schedule().Next(now); !t.IsZero() && len(d.Next) < next; t = j.Schedule().Next(t) {
			d.Next = append(d.Next, t.In(j.Zone()))
		}
		for _, change := range j.ClockChanges(now, now.AddDate(1, 0, 0)) {
			d.ClockChanges = append(d.ClockChanges, changeOf(change, j.Zone()))
		}
		r.Jobs = append(r.Jobs, d)
	}
	return r
}

func (r *report) add(severity string, problems []problem) {
	for _, p := range problems {
		r.Problems = append(r.Problems, problemJSON{severity, p.file, p.line, p.column, strings.Join(p.key, "."), p.message})
	}
}

func changeOf(c jobs.ClockChange, zone *time.Location) changeJSON {
	out := changeJSON{At: c.At.In(zone), Kind: "fold", Wall: c.Wall.Format("2006-01-02T15:04:05"), More: c.More, Due: []time.Time{}}
	if c.Gap {
		out.Kind = "gap"
	}
	for _, t := range c.Due {
		out.Due = append(out.Due, t.In(zone))
	}
	return out
}

const (
	onWall = "Mon 2 Jan 2006 15:04:05.999 MST"
	inUTC  = "2006-01-02 15:04:05.999"
)

func (r *report) print(out io.Writer) {
	if r.err != nil {
		return
	}
	due := newTable(out, "JOB", "DUE", "UTC", "SCHEDULE")
	changed := newTable(out, "CLOCK CHANGES", "JOB", "", "")
	var changes []changeJSON
	for _, j := range r.Jobs {
		name, schedule := j.Job, j.Schedule
		if schedule == "" {
			due.row(name, "by hand", "", "")
		} else if len(j.Next) == 0 {
			due.row(name, "not any more", "", schedule)
		}
		for _, t := range j.Next {
			due.row(name, t.Format(onWall), t.UTC().Format(inUTC), schedule)
			name, schedule = "", ""
		}
		for _, c := range j.ClockChanges {
			c.job = j.Job
			changes = append(changes, c)
		}
	}
	due.print()
	slices.SortStableFunc(changes, func(a, b changeJSON) int { return a.At.Compare(b.At) })
	for _, c := range changes {
		changed.row(c.At.Format("Mon 2 Jan 2006"), c.job, c.what(), c.outcome())
	}
	if len(changes) > 0 {
		fmt.Fprintln(out)
		changed.print()
	}
}

// what says which times the change of the clock is about: 02:30 does not exist.
func (c changeJSON) what() string {
	wall, _ := time.Parse("2006-01-02T15:04:05", c.Wall)
	text := wall.Format(time.TimeOnly)
	if c.More > 0 {
		text += fmt.Sprintf(" and %d more", c.More)
	}
	switch {
	case c.Kind == "gap" && c.More > 0:
		return text + " do not exist"
	case c.Kind == "gap":
		return text + " does not exist"
	case c.More > 0:
		return text + " come twice"
	}
	return text + " comes twice"
}

func (c changeJSON) outcome() string {
	from := "at "
	if c.More > 0 {
		from = "from "
	}
	switch {
	case len(c.Due) == 0:
		return "skipped"
	case c.Kind == "gap":
		return "due once, at " + c.Due[0].Format("15:04:05 MST")
	case len(c.Due) == 1:
		return "due the first time, " + from + c.Due[0].Format("15:04:05 MST")
	}
	return "due both times, " + from + c.Due[0].Format("15:04:05 MST") + " and " + c.Due[1].Format("15:04:05 MST")
}
