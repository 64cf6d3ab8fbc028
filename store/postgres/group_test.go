package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A ferry is a server of these tests: it takes trips, and says what they carried.
// A call is answered with itself, doubled; 13 is refused, with all that travel
// along. A call of a thousand or more is stuck until the way is clear.
type ferry struct {
	*group[int, int]
	clear chan struct{}

	mu    sync.Mutex
	trips [][]int
	now   int // under way
	most  int // at one time
}

var errRefused = errors.New("refused")

func newFerry() *ferry {
	f := &ferry{clear: make(chan struct{})}
	f.group = newGroup(f.carry, func(err error) bool { return errors.Is(err, errRefused) }, func(call int) any { return call % 100 })
	return f
}

func (f *ferry) carry(ctx context.Context, calls []int, alone bool) ([]int, error) {
	f.mu.Lock()
	f.trips = append(f.trips, calls)
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	answers := make([]int, len(calls))
	for i, call := range calls {
		switch {
		case call == 13:
			return nil, fmt.Errorf("%w: 13 among %d", errRefused, len(calls))
		case call >= 1000:
			select {
			case <-f.clear:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		answers[i] = 2 * call
	}
	time.Sleep(time.Millisecond)
	return answers, nil
}

// call makes calls at once, each with its own context, and returns what came of
// them when all have been answered.
func (f *ferry) call(ctx context.Context, calls ...int) (answers []int, errs []error) {
	answers, errs = make([]int, len(calls)), make([]error, len(calls))
	var wait sync.WaitGroup
	for i, call := range calls {
		wait.Go(func() { answers[i], errs[i] = f.do(ctx, call) })
	}
	wait.Wait()
	return answers, errs
}

func TestACallThatComesAloneLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, began := newFerry(), time.Now()
		for range 3 {
			if answer, err := f.do(t.Context(), 21); answer != 42 || err != nil {
				t.Fatalf("answered %d, %v", answer, err)
			}
		}
		if took := time.Since(began); took != 3*time.Millisecond {
			t.Errorf("three calls of a millisecond took %s", took)
		}
	})
}

func TestCallsThatComeTogetherTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFerry()
		go f.do(t.Context(), 99)
		synctest.Wait() // it is under way
		calls := make([]int, 90)
		for i := range calls {
			calls[i] = i + 20
		}
		calls = slices.DeleteFunc(calls, func(c int) bool { return c%100 == 13 || c == 99 })
		answers, errs := f.call(t.Context(), calls...)
		for i, call := range calls {
			if answers[i] != 2*call || errs[i] != nil {
				t.Errorf("%d was answered %d, %v", call, answers[i], errs[i])
			}
		}
		if len(f.trips) != 2 || len(f.trips[1]) != len(calls) || f.most != 1 {
			t.Errorf("%d trips, %d at once, carried %d calls", len(f.trips), f.most, len(calls)+1)
		}
	})
}

func TestCallsAboutTheSameTravelOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFerry()
		if _, errs := f.call(t.Context(), 1, 101, 201, 2, 102, 3); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		for _, trip := range f.trips {
			about := map[int]bool{}
			for _, call := range trip {
				if about[call%100] {
					t.Errorf("a trip carried %v", trip)
				}
				about[call%100] = true
			}
		}
		if f.most != 1 {
			t.Errorf("%d trips at once", f.most)
		}
	})
}

func TestACallThatIsRefusedFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFerry()
		go f.do(t.Context(), 99)
		synctest.Wait()
		calls := []int{11, 12, 13, 14, 15, 16, 17, 18, 19, 20}
		answers, errs := f.call(t.Context(), calls...)
		for i, call := range calls {
			if errors.Is(errs[i], errRefused) != (call == 13) || call != 13 && answers[i] != 2*call {
				t.Errorf("%d was answered %d, %v", call, answers[i], errs[i])
			}
		}
		if f.most > maxAlone {
			t.Errorf("%d calls alone at once, want %d at most", f.most, maxAlone)
		}
	})
}

func TestACallerThatLeavesTakesNothingFromTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFerry()
		ctx, leave := context.WithCancel(t.Context())
		go f.do(t.Context(), 99)
		synctest.Wait()
		stays := make(chan error)
		go func() {
			_, err := f.do(t.Context(), 1001)
			stays <- err
		}()
		leaves := make(chan error)
		go func() {
			_, err := f.do(ctx, 1002)
			leaves <- err
		}()
		time.Sleep(2 * time.Millisecond) // both are on their way, and stuck
		leave()
		if err := <-leaves; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		close(f.clear)
		if err := <-stays; err != nil {
			t.Errorf("who stayed got %v", err)
		}
	})
}

func TestATripThatAllHaveLeftEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFerry()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		_, errs := f.call(ctx, 1001, 1002, 1003)
		for _, err := range errs {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		if f.now != 0 || f.group.trips != 0 || len(f.waiting) != 0 {
			t.Errorf("%d trips are under way, %d counted, and %d calls wait", f.now, f.group.trips, len(f.waiting))
		}
	})
}

func TestNobodyWaitsForATripThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFerry()
		stuck := make(chan error)
		go func() {
			_, err := f.do(t.Context(), 1001)
			stuck <- err
		}()
		synctest.Wait()
		began := time.Now()
		if _, err := f.do(t.Context(), 2); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > lateAfter+time.Millisecond {
			t.Errorf("waited %s for a trip that is late after %s", took, lateAfter)
		}
		began = time.Now()
		if _, err := f.do(t.Context(), 3); err != nil || time.Since(began) != time.Millisecond {
			t.Errorf("with a late trip under way, a call took %s, %v", time.Since(began), err)
		}
		close(f.clear)
		if err := <-stuck; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if f.late != 0 || f.group.trips != 0 {
			t.Errorf("%d trips are counted, %d of them late", f.group.trips, f.late)
		}
	})
}
