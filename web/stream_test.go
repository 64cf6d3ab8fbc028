package web

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"quorate/jobs"
	"quorate/store"
)

// A lateStore hides runs until they are shown, as a transaction does that took its
// id before others and commits after them.
type lateStore struct {
	store.Store
	mu     sync.Mutex
	hidden map[int64]bool
}

func (s *lateStore) Runs(ctx context.Context, f store.Filter) ([]jobs.Run, error) {
	runs, err := s.Store.Runs(ctx, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(runs, func(r jobs.Run) bool { return s.hidden[r.ID] }), err
}

func (s *lateStore) hide(id int64, hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden[id] = hidden
}

// A history makes runs in a real store, and knows what a stream has to tell of them.
type history struct {
	t      *testing.T
	store  *lateStore
	jobs   int
	open   []jobs.Run
	events []string // what was there to tell, in any order
}

func newHistory(t *testing.T) *history {
	return &history{t: t, store: &lateStore{Store: newStore(t), hidden: map[int64]bool{}}}
}

var firstDue = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func event(r jobs.Run) string { return fmt.Sprintf("%d %s", r.ID, r.Status) }

// begin claims a run; each has a job and a lock of its own.
func (h *history) begin() jobs.Run {
	h.t.Helper()
	h.jobs++
	job := &jobs.Job{Name: fmt.Sprintf("job%d", h.jobs), Lock: fmt.Sprintf("job%d", h.jobs)}
	run, err := h.store.Claim(h.t.Context(), store.Claim{
		Tick:    jobs.Tick{Job: job, Due: firstDue.Add(time.Duration(h.jobs) * time.Second), Attempt: 1, Trigger: jobs.TriggerSchedule},
		Replica: "a", Revision: "r", Lease: time.Hour, Evidence: jobs.Evidence{Votes: 3, Masters: 5},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.open = append(h.open, run)
	h.events = append(h.events, event(run))
	return run
}

func (h *history) end(run jobs.Run) {
	h.t.Helper()
	run, err := h.store.Finish(h.t.Context(), run, jobs.Outcome{Status: jobs.Succeeded})
	if err != nil {
		h.t.Fatal(err)
	}
	h.open = slices.DeleteFunc(h.open, func(r jobs.Run) bool { return r.ID == run.ID })
	h.events = append(h.events, event(run))
}

func (h *history) miss() {
	h.t.Helper()
	h.jobs++
	rows, err := h.store.Record(h.t.Context(), jobs.Run{
		Job: fmt.Sprintf("job%d", h.jobs), Due: firstDue.Add(time.Duration(h.jobs) * time.Second), Attempt: 1,
		Trigger: jobs.TriggerSchedule, Status: jobs.Missed, Reason: jobs.ReasonNoQuorum,
	})
	if err != nil || len(rows) != 1 {
		h.t.Fatal(rows, err)
	}
	h.events = append(h.events, event(rows[0]))
}

// from returns a follower that adds to told.
func (h *history) from(cursor string, told *[]string) *follower {
	h.t.Helper()
	f, err := newFollower(h.store, cursor)
	if err != nil {
		h.t.Fatal(err)
	}
	f.tell = func(r jobs.Run) error { *told = append(*told, event(r)); return nil }
	return f
}

func look(t *testing.T, f *follower) {
	t.Helper()
	if err := f.look(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
}

func TestARunIsToldWhenItBeginsAndWhenItEnds(t *testing.T) {
	h := newHistory(t)
	var told []string
	f := h.from("0", &told)
	look(t, f)
	run := h.begin()
	look(t, f)
	look(t, f)
	h.end(run)
	h.miss()
	look(t, f)
	look(t, f)
	if want := []string{"1 running", "1 succeeded", "2 missed"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestARunThatBecomesVisibleLateIsNotMissed(t *testing.T) {
	h := newHistory(t)
	var told []string
	f := h.from("0", &told)
	first := h.begin()
	h.store.hide(first.ID, true)
	h.begin()
	look(t, f)
	h.store.hide(first.ID, false)
	look(t, f)
	look(t, f)
	if want := []string{"2 running", "1 running"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestAStreamThatBeginsNowSeesALateRunAndTheEndsOfEarlierOnes(t *testing.T) {
	h := newHistory(t)
	early, late := h.begin(), h.begin()
	h.store.hide(late.ID, true)
	done := h.begin()
	h.end(done)
	var told []string
	f := h.from("0", &told)
	if err := f.live(t.Context(), store.Filter{}, 0); err != nil {
		t.Fatal(err)
	}
	look(t, f)
	if len(told) > 0 {
		t.Errorf("told %q before anything happened", told)
	}
	h.store.hide(late.ID, false)
	h.end(early)
	look(t, f)
	if want := []string{"1 succeeded", "2 running"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestAStreamCanBeginWithTheLastRuns(t *testing.T) {
	h := newHistory(t)
	h.miss()
	running := h.begin()
	h.miss()
	var told []string
	f := h.from("0", &told)
	if err := f.live(t.Context(), store.Filter{}, 2); err != nil {
		t.Fatal(err)
	}
	h.end(running)
	look(t, f)
	if want := []string{"2 running", "3 missed", "2 succeeded"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// Whatever happens in whatever order, and however often the reader goes away and
// comes back with the id of its last event, each event reaches it once.
func TestNothingIsMissedOrRepeatedAcrossReconnects(t *testing.T) {
	for seed := range uint64(5) {
		h := newHistory(t)
		rng := rand.New(rand.NewPCG(seed, 0))
		var told []string
		f := h.from("0", &told)
		var hidden []int64
		for range 120 {
			switch rng.IntN(7) {
			case 0, 1:
				h.begin()
			case 2:
				if len(h.open) > 0 {
					h.end(h.open[rng.IntN(len(h.open))])
				}
			case 3:
				h.miss()
			case 4:
				run := h.begin()
				h.store.hide(run.ID, true)
				hidden = append(hidden, run.ID)
			case 5:
				if len(hidden) > 0 {
					i := rng.IntN(len(hidden))
					h.store.hide(hidden[i], false)
					hidden = slices.Delete(hidden, i, i+1)
				}
			case 6:
				look(t, f)
				if rng.IntN(2) == 0 {
					f = h.from(f.cursor(), &told)
				}
			}
		}
		for _, id := range hidden {
			h.store.hide(id, false)
		}
		look(t, f)
		for _, run := range slices.Clone(h.open) {
			h.end(run)
		}
		look(t, f)

		t.Logf("seed %d", seed)
		h.compare(t, told)
	}
}

// compare says where what a reader was told differs from what happened. A run that
// has ended when the reader first hears of it need not have been told as running.
func (h *history) compare(t *testing.T, told []string) {
	t.Helper()
	seen := map[string]int{}
	for _, e := range told {
		seen[e]++
	}
	for _, e := range h.events {
		id, status, _ := strings.Cut(e, " ")
		switch {
		case seen[e] > 1:
			t.Errorf("%q was told %d times", e, seen[e])
		case seen[e] == 0 && status != "running":
			t.Errorf("%q was missed", e)
		case seen[e] == 0 && seen[id+" succeeded"] == 0:
			t.Errorf("run %s was missed", id)
		}
		delete(seen, e)
	}
	if len(seen) > 0 {
		t.Errorf("told what never was: %v", seen)
	}
}

func TestAnIdThatNeverComesIsGivenUp(t *testing.T) {
	h := newHistory(t)
	gone := h.begin()
	h.store.hide(gone.ID, true)
	h.begin()
	var told []string
	f := h.from("0", &told)
	look(t, f)
	if got := f.cursor(); got != "2.x1.2" {
		t.Errorf("cursor is %q, want the hole and the open run in it", got)
	}
	if err := f.look(t.Context(), time.Now().Add(holePatience+time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := f.cursor(); got != "2.2" {
		t.Errorf("cursor is %q, want the hole gone", got)
	}
}

func TestACursorStaysShort(t *testing.T) {
	h := newHistory(t)
	var told []string
	f := h.from("0", &told)
	f.top = 100_000
	for id := range int64(5000) {
		f.open[50_000+id] = true
	}
	if got := f.cursor(); got != "49999" {
		t.Errorf("cursor is %d bytes, want the place before the first that is open", len(got))
	}
}

func TestACursorThatIsNoneIsRefused(t *testing.T) {
	h := newHouse(t)
	for _, cursor := range []string{"x", "1.y", "-1", "x1", "1..2", "99999999999999999999", strings.Repeat("1.", 5000)} {
		w := ask(h, "GET", "/api/v1/runs/stream?after="+cursor, bearer)
		if w.Code != http.StatusUnprocessableEntity {
			t.Errorf("after=%.20s answers %d, want 422", cursor, w.Code)
		}
	}
}

func TestTooManyStreamsAreRefusedAndGivenBack(t *testing.T) {
	h := newHouse(t)
	h.streams.Store(maxStreams)
	if w := ask(h, "GET", "/api/v1/runs/stream", bearer); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one stream too many answers %d, want 503", w.Code)
	}
	h.streams.Store(0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest("GET", "/api/v1/runs/stream", nil).WithContext(ctx)
	if w := askWith(h, r, bearer); w.Code != http.StatusOK {
		t.Errorf("a stream answers %d, want 200", w.Code)
	}
	if n := h.streams.Load(); n != 0 {
		t.Errorf("%d streams count as open after all have ended", n)
	}
}

// A quietStore has nothing to tell.
type quietStore struct{ store.Store }

func (quietStore) Runs(context.Context, store.Filter) ([]jobs.Run, error) { return nil, nil }

func TestAQuietStreamStillBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{poll: 500 * time.Millisecond, closing: make(chan struct{})}
		f, _ := newFollower(quietStore{}, "7")
		ctx, cancel := context.WithTimeout(t.Context(), 4*heartbeat+time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		s.follow(ctx, f, events{w, http.NewResponseController(w)}, func(context.Context) error { return nil })
		if n := strings.Count(w.Body.String(), ": alive\nid: 7\n\n"); n != 5 {
			t.Errorf("%d heartbeats in four periods, want 5 with the first:\n%s", n, w.Body)
		}
	})
}
