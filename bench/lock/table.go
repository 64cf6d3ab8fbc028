//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A column is a figure of every subject.
type column struct {
	head   string
	figure func(sample) float64
	spread bool // print the lowest and the highest too
	zero   bool // nothing is a value, and not the lack of one
}

var columns = []column{
	{"ops/s", perSecond, true, false},
	{"p50 µs", p50, true, false},
	{"p99 µs", p99, true, false},
	{"gap µs", gap, false, false},
	{"client µs/op", clientCPU, false, false},
	{"redis µs/op", redisCPU, false, false},
	{"allocs/op", allocs, false, false},
	{"left/1000", left, false, true},
	{"goroutines", goroutines, false, false},
	{"foreign %", foreign, false, true},
}

// legend explains the columns.
const legend = `
median (lowest–highest) of the rounds; ÷ is the median of the ratios within each round
ops/s         acquire and release; case held: failed attempts
p50, p99      of the attempt to acquire alone; case queue: of the wait
gap µs        case queue: from a release to the next owner, while somebody waits, p50
client µs/op  CPU of this process, the load generator included (getrusage); one slow: the proxy too
redis µs/op   CPU of the five servers together (/proc)
allocs/op     of this process (runtime.MemStats.Mallocs); the load generator's key is one of them
left/1000     keys on the five masters when all has been quiet for a while, per 1000 operations
goroutines    of this process, the most at one time
foreign %     share of the machine's CPU that others used meanwhile: ratios suffer above some 10
`

func (r *report) writeTable(w io.Writer) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "quorate/redlock beside redsync %s (go-redis %s)\n%s, redis-server %s ×5 on loopback, %d CPUs for all; %d rounds of %s; %s, took %s\n",
		r.Versions["github.com/go-redsync/redsync/v4"], r.Versions["github.com/redis/go-redis/v9"],
		r.Go, r.Redis, r.CPUs, r.Rounds, r.Time, r.Began.Format("2006-01-02 15:04"), r.Took.Round(time.Second))
	if r.Repeated > 0 {
		fmt.Fprintf(&out, "%d turns were played again because others were too busy\n", r.Repeated)
	}
	for _, o := range r.Cases {
		o.write(&out)
	}
	out.WriteString(legend)
	_, err := w.Write(out.Bytes())
	return err
}

func (o outcome) write(out *bytes.Buffer) {
	fmt.Fprintf(out, "\n%s: %s\n", o.name, o.title)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "  \tops/s ÷ %s\tclient CPU ÷", o.base)
	for _, c := range columns {
		fmt.Fprintf(table, "\t%s", c.head)
	}
	fmt.Fprintln(table)
	for _, sub := range o.subjects {
		samples := o.rounds[sub.name]
		fmt.Fprintf(table, "  %s\t%s\t%s", sub.name, spread(ratios(o.rounds, perSecond, sub.name, o.base), "×"),
			ratioText(ratioOf(clientCPU, sub.name, o.base)(o.rounds)))
		for _, c := range columns {
			values := each(samples, c.figure)
			if c.spread {
				fmt.Fprintf(table, "\t%s", spread(values, ""))
			} else {
				fmt.Fprintf(table, "\t%s", c.number(median(values)))
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // into memory
	o.writeErrors(out)
	for _, a := range o.aims {
		verdict, got := "missed", a.got(o.rounds)
		switch {
		case math.IsNaN(got):
			verdict = "not measured"
		case a.reached(got):
			verdict = "reached"
		}
		fmt.Fprintf(out, "  aim: %s: %s, %s\n", a, number(got), verdict)
	}
}

// writeErrors tells which subjects had attempts that did not end as they should.
func (o outcome) writeErrors(out *bytes.Buffer) {
	for _, sub := range o.subjects {
		wrong, all, first := 0, 0, ""
		for _, s := range o.rounds[sub.name] {
			wrong, all = wrong+s.Errors, all+s.Ops+s.Errors
			if first == "" {
				first = s.FirstError
			}
		}
		if wrong > 0 {
			fmt.Fprintf(out, "  %s: %d of %d operations failed, the first: %s\n", sub.name, wrong, all, strings.ReplaceAll(first, "\n", "; "))
		}
	}
}

func (c column) number(v float64) string {
	if v == 0 && !c.zero {
		return "–"
	}
	return number(v)
}

func ratioText(v float64) string {
	if v == 0 || math.IsNaN(v) {
		return "–"
	}
	return number(v) + "×"
}

func spread(values []float64, unit string) string {
	mid := median(values)
	if math.IsNaN(mid) || mid == 0 {
		return "–" // a raw subject has none
	}
	if len(values) == 1 {
		return number(mid) + unit
	}
	return fmt.Sprintf("%s%s (%s–%s)", number(mid), unit, number(slices.Min(values)), number(slices.Max(values)))
}

// number prints three digits that matter.
func number(v float64) string {
	switch {
	case math.IsNaN(v), math.IsInf(v, 0):
		return "–"
	case math.Abs(v) >= 10000:
		return fmt.Sprintf("%.3gk", v/1000)
	case math.Abs(v) >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
