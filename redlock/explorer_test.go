package redlock

import (
	"math/big"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// An explorer goes through all the runs of a scene. Each state that a run can come
// to is left in every direction, once: by a run of its own from the beginning, for a
// Locker cannot be copied. How many runs there are in all is counted afterwards.
type explorer struct {
	scene  scene
	number map[string]int
	next   [][]int // by state: those that its steps lead to
	runs   int     // that were made
	steps  int
	broken string // the first promise that was
	path   []step // how
}

// A branch is a step that was not made yet, with the way there.
type branch struct {
	path []step
	from int // the state before it
}

// explore goes every way, until a promise is broken.
func explore(t *testing.T, sc scene) *explorer {
	e := &explorer{scene: sc, number: map[string]int{}}
	synctest.Test(t, func(*testing.T) {
		open := []branch{{from: -1}}
		for len(open) > 0 && e.broken == "" {
			last := len(open) - 1
			open = e.run(open[last], open[:last])
		}
	})
	return e
}

// run goes to the end of a branch, and on until it comes to a state that is known.
// It adds the branches that it passed.
func (e *explorer) run(b branch, open []branch) []branch {
	w := newExplored(e.scene)
	defer w.close()
	e.runs++
	e.steps += len(b.path)
	for _, s := range b.path {
		w.do(s)
	}
	for path, from := b.path, b.from; ; e.steps++ {
		if w.broken != "" {
			e.broken, e.path = w.broken, path
			return open
		}
		if len(path) > 0 && path[len(path)-1].what == settle {
			return open
		}
		at, known := e.visit(w.state(), from)
		if known {
			return open
		}
		steps := w.steps()
		for _, s := range steps[1:] {
			open = append(open, branch{append(slices.Clip(path), s), at})
		}
		path, from = append(slices.Clip(path), steps[0]), at
		w.do(steps[0])
	}
}

// visit notes that a step leads from one state to another.
func (e *explorer) visit(state string, from int) (at int, known bool) {
	at, known = e.number[state]
	if !known {
		at = len(e.next)
		e.number[state] = at
		e.next = append(e.next, nil)
	}
	if from >= 0 {
		e.next[from] = append(e.next[from], at)
	}
	return at, known
}

// interleavings is how many ways there are from the first state to an end.
func (e *explorer) interleavings() *big.Int {
	counts := make([]*big.Int, len(e.next))
	var count func(at int) *big.Int
	count = func(at int) *big.Int {
		if counts[at] != nil {
			return counts[at]
		}
		sum := new(big.Int)
		for _, n := range e.next[at] {
			sum.Add(sum, count(n))
		}
		if len(e.next[at]) == 0 {
			sum.SetInt64(1)
		}
		counts[at] = sum
		return sum
	}
	return count(0)
}

func TestNoOrderOfEventsWithOneFaultMakesTwoOwnersOrLeavesAKey(t *testing.T) {
	faults := allFaults
	if underRace {
		faults = []event{tick}
	}
	for _, fault := range faults {
		t.Run(fault.String(), func(t *testing.T) {
			start := time.Now()
			e := explore(t, scene{fault: fault})
			if e.broken != "" {
				t.Fatalf("%s: %v", e.broken, e.path)
			}
			t.Logf("%s interleavings, %d states, %d runs, %d steps in %s", e.interleavings(), len(e.next), e.runs, e.steps, time.Since(start))
		})
	}
}

func TestTheExplorerFindsPlantedBugs(t *testing.T) {
	for name, bug := range map[string]struct {
		scene scene
		finds string
	}{
		"quorum of 1 of 3":                             {scene{quorum: 1}, "two owners"},
		"restart without quarantine":                   {scene{fault: wipe, guard: -1}, "two owners"},
		"a question that is overtaken by all releases": {scene{fault: cutLate, overtaken: 4}, "a key is left"},
	} {
		start := time.Now()
		e := explore(t, bug.scene)
		if e.broken != bug.finds {
			t.Errorf("%s: found %q, want %q", name, e.broken, bug.finds)
		}
		t.Logf("%s: after %d states in %s: %s: %v", name, len(e.next), time.Since(start), e.broken, e.path)
	}
}
