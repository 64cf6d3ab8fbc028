package redlock

import (
	"math"
	"time"
)

// Dice decide one thing, or a few in a row: what becomes of a message, what a client
// does next. They are thrown from the seed and the name of the thing, so that a seed
// decides the same in every run, whatever else happens in between.
type dice uint64

// What they are thrown for.
const (
	forLaw uint64 = iota
	forMaster
	forOutage
	forClient
	forProcess
	forPartition
	forQuestion
	forAnswer
	forBoot
	forBreak
	forStray
)

func throw(seed uint64, name ...uint64) dice {
	d := dice(seed)
	for _, part := range name {
		d = dice(d.next() ^ part)
	}
	return d
}

// next is SplitMix64.
func (d *dice) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// share is in [0, 1).
func (d *dice) share() float64 { return float64(d.next()>>11) / (1 << 53) }

func (d *dice) chance(p float64) bool { return d.share() < p }

func (d *dice) below(n int) int { return int(d.next() % uint64(n)) }

// scale is from lo to hi, each order of magnitude being as likely as the others.
func (d *dice) scale(lo, hi float64) float64 { return lo * math.Pow(hi/lo, d.share()) }

// lasting is scale for a time.
func (d *dice) lasting(lo, hi time.Duration) time.Duration {
	return time.Duration(d.scale(float64(lo), float64(hi)))
}
