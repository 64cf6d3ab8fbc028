package jobs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// The years and the zones that are compared with the oracle, and how much of it:
// enough for every change in the code by default, all of it with QUORATE_TEST_FULL.
const firstTested, lastTested = 2020, 2040

// A tally counts what was compared.
type tally struct {
	mu                        sync.Mutex
	zones, specs, years, dues int
}

func (c *tally) add(zones, specs, years, dues int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zones, c.specs, c.years, c.dues = c.zones+zones, c.specs+specs, c.years+years, c.dues+dues
}

func full() bool { return os.Getenv("QUORATE_TEST_FULL") != "" }

func eachZone(t *testing.T, seed uint64, try func(r *rand.Rand, name string, zone *time.Location) error) {
	t.Helper()
	names := slices.Sorted(maps.Keys(zones()))
	if len(names) < 500 {
		t.Fatalf("only %d zones", len(names))
	}
	var running sync.WaitGroup
	slots := make(chan bool, runtime.GOMAXPROCS(0))
	for i, name := range names {
		z, err := loadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		slots <- true
		running.Go(func() {
			defer func() { <-slots }()
			if err := try(rand.New(rand.NewPCG(seed, uint64(i))), name, z.Location); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	running.Wait()
}

func TestEveryZoneAgreesWithTheOracleWhereTheClockChanges(t *testing.T) {
	windows, specs := 1, 3
	if full() {
		windows, specs = 1000, 200
	}
	var count tally
	eachZone(t, 1, func(r *rand.Rand, name string, zone *time.Location) error {
		first, last := firstTested, lastTested
		if !full() {
			first = firstTested + r.IntN(lastTested-firstTested+1)
			last = first
		}
		starts := changes(zone, first, last)
		r.Shuffle(len(starts), func(i, j int) { starts[i], starts[j] = starts[j], starts[i] })
		starts = starts[:min(len(starts), windows)]
		for len(starts) < min(windows, 10) { // also where it never does
			starts = append(starts, time.Date(firstTested, 1, 1, r.IntN(21*365*24), r.IntN(60), 0, 0, time.UTC))
		}
		for _, start := range starts {
			stretch := scan(zone, start.Add(-30*time.Hour), 60*60)
			for range specs {
				n, err := compare(r, randomRiddle(r, name, start.Year()), zone, stretch)
				if err != nil {
					return err
				}
				count.add(0, 1, 0, n)
			}
		}
		count.add(1, 0, len(starts), 0)
		return nil
	})
	t.Logf("%d zones, %d stretches of 60 hours, %d specs, %d due times", count.zones, count.years, count.specs, count.dues)
}

func TestEveryZoneAgreesWithTheOracleOverWholeYears(t *testing.T) {
	specs, years := 1, 0
	if full() {
		specs, years = 10, lastTested-firstTested+1
	}
	var count tally
	eachZone(t, 2, func(r *rand.Rand, name string, zone *time.Location) error {
		first, last := firstTested, firstTested+years-1
		if years == 0 { // one zone in a hundred, one year
			if r.IntN(100) > 0 {
				return nil
			}
			first = firstTested + r.IntN(lastTested-firstTested+1)
			last = first
		}
		for year := first; year <= last; year++ {
			stretch := scan(zone, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), 366*24*60)
			for range specs {
				n, err := compare(r, randomRiddle(r, name, year), zone, stretch)
				if err != nil {
					return err
				}
				count.add(0, 1, 1, n)
			}
		}
		count.add(1, 0, 0, 0)
		return nil
	})
	t.Logf("%d zones, %d years with a spec each, %d due times", count.zones, count.years, count.dues)
}

// compare asks a schedule for every due time of a stretch, from before and from
// behind, and at random instants, as a replica does that starts then.
func compare(r *rand.Rand, q riddle, zone *time.Location, stretch []minute) (int, error) {
	due := q.dues(stretch, zone)
	s, bad := q.job.buildSchedule()
	from, until := stretch[0].at, stretch[len(stretch)-1].at+60
	if len(bad) > 0 {
		if len(due) == 0 {
			return 0, nil // it is never due, and that is said
		}
		return 0, fmt.Errorf("%+v: %v", q.job, bad)
	}
	t := time.Unix(from-1, 0)
	for i, want := range due {
		next := s.Next(t)
		if next.Unix() != want {
			return 0, fmt.Errorf("%+v: Next(%s) is %s, the oracle says %s", q.job, t.UTC(), next, time.Unix(want, 0).UTC())
		}
		if i > 0 {
			if last := s.Last(next.Add(-1)); !last.Equal(t) {
				return 0, fmt.Errorf("%+v: Last before %s is %s, the oracle says %s", q.job, next, last, t.UTC())
			}
		}
		t = next
	}
	if beyond := s.Next(t); !beyond.IsZero() && beyond.Unix() < until {
		return 0, fmt.Errorf("%+v: Next(%s) is %s, which the oracle does not know", q.job, t.UTC(), beyond)
	}
	for range 20 {
		t := time.Unix(from+r.Int64N(until-from), r.Int64N(1e9))
		i := before(due, t.Unix())
		if i > 0 && s.Last(t).Unix() != due[i-1] {
			return 0, fmt.Errorf("%+v: Last(%s) is %s, the oracle says %s", q.job, t.UTC(), s.Last(t), time.Unix(due[i-1], 0).UTC())
		}
		if i < len(due) && s.Next(t).Unix() != due[i] {
			return 0, fmt.Errorf("%+v: Next(%s) is %s, the oracle says %s", q.job, t.UTC(), s.Next(t), time.Unix(due[i], 0).UTC())
		}
	}
	return len(due), nil
}
