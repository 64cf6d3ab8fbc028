package redlock

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSimulation acquires so many leases, in as many seeds as it takes, always from the
// first one on. With QUORATE_TEST_SEED it replays one and prints all that happens.
func TestSimulation(t *testing.T) {
	if text := os.Getenv("QUORATE_TEST_SEED"); text != "" {
		replay(t, text)
		return
	}
	most := 1_000_000
	if underRace || testing.Short() {
		most = 10_000
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // much garbage, and nothing to keep
	var seeds, granted atomic.Int64
	var mu sync.Mutex
	var all tally
	start := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for granted.Load() < int64(most) && !t.Failed() {
					w := simulate(t, uint64(seeds.Add(1)), planted{}, false)
					if w.broken != "" {
						t.Error(story(t, w))
					}
					granted.Add(int64(w.counts[grants]))
					mu.Lock()
					all.add(w.counts)
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d seeds in %s\n%s", seeds.Load(), time.Since(start).Round(time.Second), all)
}

func replay(t *testing.T, text string) {
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("QUORATE_TEST_SEED: %v", err)
	}
	w := simulate(t, seed, planted{}, true)
	t.Logf("%+v\n%s\n%s", w.law, strings.Join(w.trace, "\n"), w.counts)
	if w.broken != "" {
		t.Error(w.broken)
	}
}

// story replays a seed for what led to its end.
func story(t *testing.T, w *world) string {
	trace := simulate(t, w.seed, w.bug, true).trace
	end := slices.IndexFunc(trace, func(line string) bool { return strings.Contains(line, brokenMark) })
	last := trace[max(0, end-100) : end+1]
	return fmt.Sprintf("%s\n%+v\n%s\nthe whole of it: QUORATE_TEST_SEED=%d go test -count=1 -v -run 'TestSimulation$' ./redlock",
		w.broken, w.law, strings.Join(last, "\n"), w.seed)
}

func TestTheSimulationFindsPlantedBugs(t *testing.T) {
	for name, bug := range map[string]struct {
		planted
		finds string
	}{
		"a quorum of 2 of 5":         {planted{quorum: 2}, "two owners"},
		"validity from the end":      {planted{fromEnd: true}, "two owners"},
		"restart without quarantine": {planted{guard: -1}, "two owners"},
		"a careless janitor":         {planted{careless: true}, "is left"},
		"a quorum of 5 of 5":         {planted{quorum: 5}, "nobody got"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 1000; seed++ {
				if w := simulate(t, seed, bug.planted, false); strings.Contains(w.broken, bug.finds) {
					t.Logf("seed %d: %s", seed, w.broken)
					return
				}
			}
			t.Error("not found")
		})
	}
}

func TestTheHistoryOfASimulationShowsAPlantedBug(t *testing.T) {
	for seed := uint64(1); seed <= 1000; seed++ {
		if w := simulate(t, seed, planted{quorum: 2}, false); !w.lawful {
			t.Logf("seed %d", seed)
			return
		}
	}
	t.Error("not found")
}

func TestASeedOfTheSimulationReplaysExactly(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		first, again := simulate(t, seed, planted{}, true).trace, simulate(t, seed, planted{}, true).trace
		for i := range min(len(first), len(again)) {
			if first[i] != again[i] {
				t.Fatalf("seed %d, line %d: %s\nand again: %s", seed, i+1, first[i], again[i])
			}
		}
	}
}
