//go:build unix

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// A scenario is one thing that is measured, of each of its subjects in turn. The
// others are compared with the base.
type scenario struct {
	name     string
	title    string
	base     string
	subjects []subject
	aims     []aim
}

// A subject plays one turn and says what it saw.
type subject struct {
	name    string
	measure func(ctx context.Context, st *stage, round int) (sample, error)
}

// An aim is what quorate is built to reach.
type aim struct {
	what   string
	atMost bool // else at least
	want   float64
	got    func(rounds) float64
}

func scenarios() []scenario {
	return []scenario{
		{
			name: "c1", title: "1 goroutine, a key of its own per attempt", base: peer.name,
			subjects: append(attempts(1, false),
				subject{"raw round trip, hot", rawHot},
				subject{"raw round trip, in turn", rawInTurn},
				subject{"raw quorum of 5", rawQuorum}),
			aims: append(uncontended(2),
				noSlowerThan("raw round trip, hot"), noSlowerThan("raw round trip, in turn"), noSlowerThan("raw quorum of 5")),
		},
		{
			name: "c16", title: "16 goroutines, a key of its own per attempt", base: peer.name,
			subjects: attempts(16, false), aims: uncontended(5),
		},
		{
			name: "c256", title: "256 goroutines, a key of its own per attempt", base: peer.name,
			subjects: attempts(256, false),
			aims: append(uncontended(11),
				aim{"client CPU of redsync ÷ ours", false, 15, ratioOf(clientCPU, peer.name, quorate.name)}),
		},
		{
			name: "held", title: "64 goroutines, failed attempts at one key that somebody else holds", base: peer.name,
			subjects: attempts(64, true), aims: []aim{faster(25), nothingLeft()},
		},
		{
			name: "queue", title: "8 goroutines wait for one key, hold it for 2 ms and pause for 5", base: peer.name,
			subjects: []subject{
				{quorate.name, queue{quorate, 8}.measure}, {peer.name, queue{peer, 8}.measure}, {failFast.name, queue{failFast, 8}.measure},
			},
			aims: []aim{
				{"gap between owners, p50 in µs", true, 600, of(gap, quorate.name)},
				{"wait, p99 in µs", true, 100_000, of(p99, quorate.name)},
			},
		},
		oneBroken(),
	}
}

// attempts is all contenders under the same load.
func attempts(goroutines int, contested bool) []subject {
	var all []subject
	for _, c := range []contender{quorate, peer, failFast} {
		l := load{contender: c, goroutines: goroutines, contested: contested}
		all = append(all, subject{c.name, l.measure})
	}
	return all
}

// oneBroken compares ourselves with ourselves: one of five masters may be away
// without a caller noticing.
func oneBroken() scenario {
	s := scenario{name: "broken", title: "16 goroutines, one master of five broken", base: "all healthy"}
	for _, f := range []fault{none, refuses, hangs, slow} {
		name := "all healthy"
		if f != none {
			name = "one " + string(f)
		}
		l := load{contender: quorate, goroutines: 16, fault: f}
		s.subjects = append(s.subjects, subject{name, l.measure})
		if f == none {
			continue
		}
		s.aims = append(s.aims,
			aim{name + ": p50 ÷ all healthy", true, 1.2, ratioOf(p50, name, s.base)},
			aim{name + ": p99 ÷ all healthy", true, 1.2, ratioOf(p99, name, s.base)})
		if f == hangs {
			s.aims = append(s.aims, aim{name + ": goroutines more than all healthy", true, 0, moreOf(goroutines, name, s.base)})
		}
	}
	return s
}

// uncontended is the aims of attempts that all succeed.
func uncontended(times float64) []aim {
	return []aim{
		faster(times),
		{"allocations", true, 60, of(allocs, quorate.name)},
		nothingLeft(),
	}
}

func faster(times float64) aim {
	return aim{"ops/s ÷ redsync", false, times, ratioOf(perSecond, quorate.name, peer.name)}
}

// noSlowerThan compares acquiring with what the wire takes.
func noSlowerThan(raw string) aim {
	return aim{"p50 ÷ " + raw, true, 1.2, ratioOf(p50, quorate.name, raw)}
}

func nothingLeft() aim {
	return aim{"keys left behind per 1000", true, 0, of(left, quorate.name)}
}

// onlyOurs leaves the subjects that are quorate, for a profile.
func (s scenario) onlyOurs() scenario {
	s.subjects = slices.DeleteFunc(s.subjects, func(sub subject) bool { return sub.name != quorate.name && s.name != "broken" })
	return s
}

func caseNames(all []scenario) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// The figures of a sample; the raw subjects have few of them.
func perSecond(s sample) float64  { return s.PerSecond }
func p50(s sample) float64        { return micros(s.P50) }
func p99(s sample) float64        { return micros(s.P99) }
func gap(s sample) float64        { return micros(s.Gap) }
func clientCPU(s sample) float64  { return s.ClientCPU }
func redisCPU(s sample) float64   { return s.RedisCPU }
func allocs(s sample) float64     { return s.Allocs }
func goroutines(s sample) float64 { return float64(s.Goroutines) }
func foreign(s sample) float64    { return 100 * s.Foreign }

func left(s sample) float64 {
	if s.Left == nil {
		return math.NaN()
	}
	return *s.Left
}

func (a aim) String() string {
	if a.atMost {
		return fmt.Sprintf("%s ≤ %s", a.what, number(a.want))
	}
	return fmt.Sprintf("%s ≥ %s", a.what, number(a.want))
}

func (a aim) reached(got float64) bool {
	if a.atMost {
		return got <= a.want
	}
	return got >= a.want
}
