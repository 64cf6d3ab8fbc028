package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"quorate/jobs"
	"quorate/store"
)

const (
	maxStreams   = 100
	heartbeat    = 15 * time.Second
	writeTimeout = 10 * time.Second // a reader that takes longer than this is gone

	pageOfRuns = 1000
	maxHoles   = 100  // ids that one jump may leave behind
	maxBehind  = 5000 // how far below top a hole is looked for
	maxCursor  = 200  // ids in a cursor, so that it fits a header

	// holePatience is how long a missing id may still turn up: longer than any
	// transaction that inserts a run may take.
	holePatience = 15 * time.Second
)

// A follower tells each run when it begins and when it ends: none is missed, none is
// told twice.
//
// Ids grow, but they do not become visible in order: a transaction that took 7 may
// commit after the one that took 8. So an id that was jumped over is a hole, and is
// looked for until it turns up or its patience is over.
type follower struct {
	store store.Store
	top   int64                // the greatest id that was told
	open  map[int64]bool       // told as running: to be told again when they end
	holes map[int64]time.Time  // ids below top that had no row: until when to look
	tell  func(jobs.Run) error // what to do with each
}

// newFollower begins where a cursor says. A cursor is all that a follower knows, so
// whoever comes back with one goes on as if it had never been away.
func newFollower(s store.Store, cursor string) (*follower, error) {
	f := &follower{store: s, open: map[int64]bool{}, holes: map[int64]time.Time{}}
	for i, word := range strings.Split(cursor, ".") {
		hole := strings.HasPrefix(word, "x")
		id, err := strconv.ParseInt(strings.TrimPrefix(word, "x"), 10, 64)
		switch {
		case err != nil || id < 0 || i > maxCursor || i == 0 && hole:
			return nil, fmt.Errorf("%s is not a place in the stream: give the id of an event, or of a run", quoted(cursor))
		case i == 0:
			f.top = id
		case hole:
			f.holes[id] = time.Now().Add(holePatience)
		default:
			f.open[id] = true
		}
	}
	return f, nil
}

// cursor is written as 812.790.x811: told up to 812, of which 790 was running, and
// 811 had no row. One that would be too long goes back to where it is short, and
// tells some runs again rather than lose one.
func (f *follower) cursor() string {
	var pending []int64
	for id := range f.open {
		pending = append(pending, id)
	}
	for id := range f.holes {
		pending = append(pending, id)
	}
	slices.Sort(pending)
	if len(pending) > maxCursor {
		return strconv.FormatInt(pending[0]-1, 10)
	}
	text := strconv.FormatInt(f.top, 10)
	for _, id := range pending {
		if f.open[id] {
			text += fmt.Sprintf(".%d", id)
		} else {
			text += fmt.Sprintf(".x%d", id)
		}
	}
	return text
}

// live begins now, with an eye on all that run already, and first with the last n
// runs that the filter lets through. It asks all it needs before it tells anything,
// so that it can be tried again.
func (f *follower) live(ctx context.Context, filter store.Filter, n int) error {
	newest, err := f.store.Runs(ctx, store.Filter{Limit: 1})
	if err != nil {
		return err
	}
	for _, r := range newest {
		f.top = r.ID
	}
	if err := f.settle(ctx); err != nil || n == 0 {
		return err
	}
	filter.Limit, filter.Before = n, f.top+1
	last, err := f.store.Runs(ctx, filter)
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(last) {
		if err := f.told(r); err != nil {
			return err
		}
	}
	return nil
}

// settle learns what top alone does not tell: which runs below it still run, so that
// their end is told, and which of the ids just below it have no row yet.
func (f *follower) settle(ctx context.Context) error {
	running, err := f.store.Runs(ctx, store.Filter{Status: jobs.Running, Before: f.top + 1, Limit: pageOfRuns})
	if err != nil {
		return err
	}
	for _, r := range running {
		f.open[r.ID] = true
	}
	first := max(1, f.top-maxHoles)
	recent, err := f.store.Runs(ctx, store.Filter{After: first - 1, Limit: maxHoles + 1})
	if err != nil {
		return err
	}
	for id := first; id <= f.top; id++ {
		f.holes[id] = time.Now().Add(holePatience)
	}
	for _, r := range recent {
		delete(f.holes, r.ID)
	}
	return nil
}

// look asks the store once, and tells what is new.
func (f *follower) look(ctx context.Context, now time.Time) error {
	if err := f.lookForEnds(ctx); err != nil {
		return err
	}
	after := f.top
	for id, until := range f.holes {
		if now.After(until) || id < f.top-maxBehind {
			delete(f.holes, id)
		} else {
			after = min(after, id-1)
		}
	}
	for {
		runs, err := f.store.Runs(ctx, store.Filter{After: after, Limit: pageOfRuns})
		if err != nil {
			return err
		}
		for _, r := range runs {
			after = r.ID
			_, awaited := f.holes[r.ID]
			if r.ID <= f.top && !awaited {
				continue
			}
			delete(f.holes, r.ID)
			for id := max(f.top+1, r.ID-maxHoles); id < r.ID; id++ {
				f.holes[id] = now.Add(holePatience)
			}
			if err := f.told(r); err != nil {
				return err
			}
		}
		if len(runs) < pageOfRuns {
			return nil
		}
	}
}

// lookForEnds tells the open runs that do not run any more.
func (f *follower) lookForEnds(ctx context.Context) error {
	if len(f.open) == 0 {
		return nil
	}
	running, err := f.store.Runs(ctx, store.Filter{Status: jobs.Running, Limit: pageOfRuns})
	if err != nil {
		return err
	}
	ended := map[int64]bool{}
	for id := range f.open {
		ended[id] = true
	}
	for _, r := range running {
		delete(ended, r.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(ended)) {
		run, err := f.store.Run(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound): // retention was faster
			delete(f.open, id)
			continue
		case err != nil:
			return err
		}
		if !run.Status.Final() {
			continue // it was beyond the page
		}
		run.Steps = nil
		if err := f.told(run); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) told(r jobs.Run) error {
	f.top = max(f.top, r.ID)
	if r.Status.Final() {
		delete(f.open, r.ID)
	} else {
		f.open[r.ID] = true
	}
	return f.tell(r)
}

type streamIn struct {
	Job    string `query:"job" doc:"Only runs of this job"`
	Status string `query:"status" enum:"running,succeeded,failed,skipped,missed,unknown" doc:"Only runs that are, or ended, so"`
	After  string `query:"after" doc:"Go on behind this event (its id), or behind the run of this id; absent: from now"`
	Last   int    `query:"last" minimum:"0" maximum:"1000" doc:"Begin with so many runs that are there already"`
	Resume string `header:"Last-Event-ID" doc:"As after; browsers send it when they reconnect"`
}

func (s *Server) streamRuns(_ context.Context, in *streamIn) (*huma.StreamResponse, error) {
	cursor := cmp.Or(in.Resume, in.After)
	f, err := newFollower(s.cfg.Store, cmp.Or(cursor, "0"))
	if err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error())
	}
	begin := f.settle
	switch {
	case cursor == "":
		begin = func(ctx context.Context) error {
			return f.live(ctx, store.Filter{Job: in.Job, Status: jobs.Status(in.Status)}, in.Last)
		}
	case strings.Contains(cursor, "."):
		begin = func(context.Context) error { return nil } // the cursor says it all
	}
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		return nil, huma.Error503ServiceUnavailable(fmt.Sprintf("there are %d streams open already: close one", maxStreams))
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer s.streams.Add(-1)
		_, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // nginx would hold the events back
		out := events{w, http.NewResponseController(w)}
		f.tell = func(r jobs.Run) error {
			if in.Job != "" && r.Job != in.Job || in.Status != "" && string(r.Status) != in.Status {
				return nil
			}
			return out.run(runJSON(r), f.cursor())
		}
		if err := s.follow(hc.Context(), f, out, begin); err != nil {
			s.log.Debug("stream ended", "err", err)
		}
	}}, nil
}

// follow looks into the store until the reader is gone or the server closes. A store
// that is away is no reason to stop: what happens meanwhile is told when it is back.
// The stream opens when it has begun, so that a reader who lists the runs from then
// on has a gapless view.
func (s *Server) follow(ctx context.Context, f *follower, out events, begin func(context.Context) error) error {
	tick := time.NewTicker(s.poll)
	defer tick.Stop()
	begun, beat := false, time.Time{}
	for {
		err := error(nil)
		if !begun {
			err = begin(ctx)
			begun = err == nil
		}
		if beat.IsZero() || time.Since(beat) >= heartbeat {
			beat = time.Now()
			if err := out.heartbeat(f.cursor(), begun); err != nil {
				return err
			}
		}
		if begun {
			err = f.look(ctx, time.Now())
		}
		if errors.Is(err, errReader) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("stream: the store does not answer", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return nil
		case <-tick.C:
		}
	}
}

// errReader: who read the stream does not any more.
var errReader = errors.New("the reader is gone")

// events writes server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e events) run(r Run, cursor string) error {
	data, err := json.Marshal(r) // on one line: JSON escapes the others
	if err != nil {
		return err
	}
	return e.write(fmt.Sprintf("id: %s\ndata: %s\n\n", cursor, data))
}

// heartbeat keeps proxies from closing a quiet stream. Its id moves the reader's
// place past runs that the filter kept back.
func (e events) heartbeat(cursor string, begun bool) error {
	if !begun {
		return e.write(": the store does not answer\n\n")
	}
	return e.write(fmt.Sprintf(": alive\nid: %s\n\n", cursor))
}

// write gives each event a deadline of its own, in place of the one that the server
// sets for a whole answer.
func (e events) write(text string) error {
	e.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := io.WriteString(e.w, text); err != nil {
		return fmt.Errorf("%w: %w", errReader, err)
	}
	if err := e.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errReader, err)
	}
	return nil
}
