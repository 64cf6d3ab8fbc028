//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// An entry is a subject with so many callers, and what its rounds measured.
type entry struct {
	subject subject
	callers int
	rounds  []sample
}

func (e *entry) String() string { return fmt.Sprintf("%s, %d callers", e.subject.name, e.callers) }

func entries(only string) []*entry {
	all := []*entry{
		{subject: bareSingle(1), callers: 1},
		{subject: bareSingle(16), callers: 16},
		{subject: bareUnnest(), callers: 1},
		{subject: quorateRuns(), callers: 1},
		{subject: quorateRuns(), callers: 16},
		{subject: quorateRuns(), callers: 256},
	}
	return slices.DeleteFunc(all, func(e *entry) bool { return !strings.Contains(e.String(), only) })
}

func measure(ctx context.Context, b *bench, stdout, stderr io.Writer) error {
	began := time.Now()
	all := entries(b.only)
	for round := range b.rounds {
		for i := range all { // another one first each time
			e := all[(i+round)%len(all)]
			s, err := turn(ctx, b, e.subject, e.callers)
			if err != nil {
				return err
			}
			e.rounds = append(e.rounds, s)
			fmt.Fprintf(stderr, "round %d of %d: %s: %.0f rows/s\n", round+1, b.rounds, e, s.PerSecond)
		}
	}
	fmt.Fprintf(stdout, "%s, %d CPUs for client and server; fsync and synchronous_commit on; %d rounds of %s; %s, took %s\n\n",
		runtime.Version(), runtime.NumCPU(), b.rounds, b.time, began.Format("2006-01-02 15:04"), time.Since(began).Round(time.Second))
	if err := table(stdout, all); err != nil || b.only != "" {
		return err
	}
	return aims(stdout, all)
}

func table(out io.Writer, all []*entry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tcallers\trows/s\tcall p50\tcall p99\tclient CPU/row\tserver CPU/row")
	for _, e := range all {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", e.subject.name, e.callers,
			spread(e.rounds, perSecond, "%.0f"), spread(e.rounds, p50, "%.2fms"), spread(e.rounds, p99, "%.2fms"),
			spread(e.rounds, clientCPU, "%.0fµs"), spread(e.rounds, serverCPU, "%.0fµs"))
	}
	return w.Flush()
}

// aims says what is to be reached, and what was.
func aims(out io.Writer, all []*entry) error {
	single, unnest, one, many := all[0].rounds, all[2].rounds, all[3].rounds, all[5].rounds
	fmt.Fprintf(out, "\naim: claim + finish at 256 callers ≥ 15000/s: %.0f\n", median(each(many, perSecond)))
	fmt.Fprintf(out, "aim: that ÷ unnest of 100 ≥ 0.1: %.3f\n", median(ratios(many, unnest, perSecond)))
	_, err := fmt.Fprintf(out, "aim: one caller's claim ÷ a bare insert, p50 ≤ 2: %.2f\n", median(ratios(one, single, p50)))
	return err
}

func perSecond(s sample) float64 { return s.PerSecond }
func p50(s sample) float64       { return s.P50.Seconds() * 1000 }
func p99(s sample) float64       { return s.P99.Seconds() * 1000 }

func clientCPU(s sample) float64 { return s.Client.Seconds() * 1e6 }
func serverCPU(s sample) float64 { return s.Server.Seconds() * 1e6 }

func each(samples []sample, figure func(sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = figure(s)
	}
	return values
}

// ratios are taken within the rounds.
func ratios(of, to []sample, figure func(sample) float64) []float64 {
	values := make([]float64, len(of))
	for i := range of {
		values[i] = figure(of[i]) / figure(to[i])
	}
	return values
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[mid-1] + sorted[mid]) / 2
	}
	return sorted[mid]
}

// spread is the median (lowest–highest) of the rounds.
func spread(samples []sample, figure func(sample) float64, format string) string {
	values := each(samples, figure)
	return fmt.Sprintf(format+" ("+format+"–"+format+")", median(values), slices.Min(values), slices.Max(values))
}
