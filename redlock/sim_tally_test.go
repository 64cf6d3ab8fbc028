package redlock

import (
	"fmt"
	"strings"
)

// A tally counts what happened.
type tally [lastCount]int

type count = int

const (
	attempts count = iota
	grants
	refusedTaken
	refusedSplit
	refusedNoQuorum
	refusedLate
	refusedCancelled
	keeps
	extensions
	failedExtensions
	releases
	failedReleases
	losses
	delays
	unheard
	partitions
	stops
	kills
	ends
	hangs
	crashes
	restarts
	oldRestarts
	emptyRestarts
	clocksSet
	flushes
	simulated
	lastCount
)

func (t *tally) add(other tally) {
	for i, n := range other {
		t[i] += n
	}
}

func (t tally) String() string {
	names := [lastCount]string{
		"attempts", "granted", "refused: taken", "refused: split", "refused: no quorum", "refused: too little validity", "cancelled",
		"kept", "extended by hand", "not extended", "released", "not released by a quorum",
		"questions lost", "questions late", "answers lost", "partitions",
		"clients stopped", "clients killed", "lockers closed",
		"masters hung", "masters down", "restarts with data", "restarts with old data", "restarts without data",
		"clocks set", "masters flushed", "seconds of fake time",
	}
	all := make([]string, len(t))
	for i, n := range t {
		all[i] = fmt.Sprintf("%9d %s", n, names[i])
	}
	return strings.Join(all, "\n")
}
