//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// rounds is what one scenario measured: of each subject, a sample per round.
type rounds map[string][]sample

// of is the median of a figure of one subject. A figure that was not measured, here
// and below, is NaN.
func of(figure func(sample) float64, subject string) func(rounds) float64 {
	return func(r rounds) float64 { return median(each(r[subject], figure)) }
}

// ratioOf is the median of the ratios that a figure of two subjects had within the
// rounds.
func ratioOf(figure func(sample) float64, subject, base string) func(rounds) float64 {
	return func(r rounds) float64 { return median(ratios(r, figure, subject, base)) }
}

// moreOf is the median of the differences.
func moreOf(figure func(sample) float64, subject, base string) func(rounds) float64 {
	return func(r rounds) float64 {
		return median(pairs(r, figure, subject, base, func(a, b float64) float64 { return a - b }))
	}
}

func ratios(r rounds, figure func(sample) float64, subject, base string) []float64 {
	return pairs(r, figure, subject, base, func(a, b float64) float64 { return a / b })
}

func pairs(r rounds, figure func(sample) float64, subject, base string, join func(a, b float64) float64) []float64 {
	a, b := each(r[subject], figure), each(r[base], figure)
	joined := make([]float64, min(len(a), len(b)))
	for i := range joined {
		joined[i] = join(a[i], b[i])
	}
	return joined
}

func each(samples []sample, figure func(sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = figure(s)
	}
	return values
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[mid-1] + sorted[mid]) / 2
	}
	return sorted[mid]
}

// A report is what a run measured, and where.
type report struct {
	Began    time.Time         `json:"began"`
	Took     time.Duration     `json:"took_ns"`
	Go       string            `json:"go"`
	Redis    string            `json:"redis"`
	Versions map[string]string `json:"versions"`
	CPUs     int               `json:"cpus"`
	Rounds   int               `json:"rounds"`
	Repeated int               `json:"repeated_turns"` // others were too busy meanwhile
	Time     time.Duration     `json:"turn_ns"`
	Cases    []outcome         `json:"cases"`
}

// An outcome is a scenario that was played.
type outcome struct {
	scenario
	rounds rounds
}

func newReport(cfg config, masters []*master) *report {
	r := &report{
		Began: time.Now(), Go: runtime.Version(), Redis: masters[0].version(), Versions: map[string]string{},
		CPUs: runtime.NumCPU(), Rounds: cfg.rounds, Time: cfg.time,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range build.Deps {
			switch dep.Path {
			case "github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9":
				r.Versions[dep.Path] = dep.Version
			}
		}
	}
	return r
}

// measure plays every round of every case. A line per round on progress says that
// it is alive.
func (r *report) measure(ctx context.Context, st *stage, cases []scenario, progress io.Writer) error {
	for _, c := range cases {
		r.Cases = append(r.Cases, outcome{c, rounds{}})
	}
	for round := range r.Rounds {
		for _, o := range r.Cases {
			if err := r.play(ctx, st, o, round); err != nil {
				return fmt.Errorf("case %s, round %d: %w", o.name, round+1, err)
			}
		}
		fmt.Fprintf(progress, "round %d of %d, after %s\n", round+1, r.Rounds, time.Since(r.Began).Round(time.Second))
	}
	r.Took = time.Since(r.Began)
	return nil
}

// play gives every subject its turn, another one first in each round.
func (r *report) play(ctx context.Context, st *stage, o outcome, round int) error {
	for i := range o.subjects {
		sub := o.subjects[(round+i)%len(o.subjects)]
		s, again, err := st.turn(ctx, sub, round)
		r.Repeated += again
		if err != nil {
			return fmt.Errorf("%s: %w", sub.name, err)
		}
		o.rounds[sub.name] = append(o.rounds[sub.name], s)
	}
	return nil
}

// turn has a subject play until others leave it alone, or patience ends.
func (st *stage) turn(ctx context.Context, sub subject, round int) (s sample, again int, err error) {
	for {
		start := time.Now()
		s, err = sub.measure(ctx, st, round)
		if err != nil || s.Foreign <= st.calm || st.patience <= 0 {
			return s, again, err
		}
		again++
		sleep(ctx, st.settle) // others come in bursts
		st.patience -= time.Since(start)
	}
}

func (r *report) writeJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

// MarshalJSON writes every sample, and the aims with what was reached.
func (o outcome) MarshalJSON() ([]byte, error) {
	type verdict struct {
		Aim     string   `json:"aim"`
		Got     *float64 `json:"got"` // null where it was not measured
		Reached bool     `json:"reached"`
	}
	var verdicts []verdict
	for _, a := range o.aims {
		v := verdict{Aim: a.String()}
		if got := a.got(o.rounds); !math.IsNaN(got) && !math.IsInf(got, 0) {
			v.Got, v.Reached = &got, a.reached(got)
		}
		verdicts = append(verdicts, v)
	}
	return json.Marshal(map[string]any{
		"name": o.name, "title": o.title, "base": o.base, "aims": verdicts, "samples": o.rounds,
	})
}
