package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
	"quorate/redlock"
	"quorate/store"
)

// A workforce is the ticks that are on their way down the path, and among them the
// runs that are under way.
type workforce struct {
	ctx    context.Context // ends when runs must
	cancel context.CancelCauseFunc
	busy   sync.WaitGroup

	mu       sync.Mutex
	draining bool
	runs     map[int64]*underway
}

// An underway run is one that this replica works on right now.
type underway struct {
	renewal store.Renewal // what the store is asked for
	renewAt time.Time
	cancel  context.CancelCauseFunc
}

func (w *workforce) init() {
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.runs = map[int64]*underway{}
}

// start runs do on a context that ends when runs must; false: no more are taken.
func (w *workforce) start(do func(context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return false
	}
	w.busy.Go(func() { do(w.ctx) })
	return true
}

// remember keeps the run among those whose lease the store renews. Its context
// ends with a cause when the store says that the run is no longer ours.
func (w *workforce) remember(ctx context.Context, run jobs.Run, job *jobs.Job) (held context.Context, forget func()) {
	held, cancel := context.WithCancelCause(ctx)
	lease := storeLease(jobs.Tick{Job: job})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[run.ID] = &underway{renewal: store.Renewal{Run: run.ID, Lock: run.Lock, Lease: lease}, renewAt: time.Now().Add(lease / 3), cancel: cancel}
	return held, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.runs, run.ID)
		cancel(context.Canceled)
	}
}

// due returns the leases of runs that are to be renewed now, and within what time.
func (w *workforce) due() (due []store.Renewal, within time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	within = recordWithin
	for _, u := range w.runs {
		if !now.Before(u.renewAt) {
			due = append(due, u.renewal)
			within = min(within, u.renewal.Lease/3)
			u.renewAt = now.Add(u.renewal.Lease / 3)
		}
	}
	return due, within
}

func (w *workforce) lose(id int64, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u := w.runs[id]; u != nil {
		u.cancel(why)
	}
}

// drain takes no more ticks, lets those under way end for as long as patience
// says, then cancels them, and returns when all have ended.
func (w *workforce) drain(patience time.Duration) {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	timer := time.AfterFunc(patience, func() { w.cancel(steps.ErrShutdown) })
	w.busy.Wait()
	timer.Stop()
	w.cancel(steps.ErrShutdown)
}

// errTakenOver: the store has given up on a run that we still work on.
var errTakenOver = errors.New("the store no longer counts this run as ours")

// keeping is what goes on beside the path of ticks.
type keeping struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func (k *keeping) stop() {
	k.cancel()
	k.ended.Wait()
}

// startKeeping renews what runs, reports that we live, closes what others left
// behind and looks for ticks without a row. It goes on while runs drain.
func (s *Scheduler) startKeeping() *keeping {
	ctx, cancel := context.WithCancel(context.Background())
	k := &keeping{cancel: cancel}
	for _, chore := range []struct {
		every time.Duration
		do    func(context.Context)
	}{
		{100 * time.Millisecond, s.renew},
		{time.Second, s.replay},
		{2 * time.Second, s.reap},
		{5 * time.Second, s.beat},
		{5 * time.Second, s.payOwed},
		{time.Minute, s.accountForGaps},
	} {
		k.ended.Go(func() {
			beat := time.NewTicker(chore.every)
			defer beat.Stop()
			for {
				within, cancel := context.WithTimeout(ctx, max(chore.every, recordWithin))
				chore.do(within)
				cancel()
				select {
				case <-ctx.Done():
					return
				case <-beat.C:
				}
			}
		})
	}
	return k
}

// renew moves the end of the runs' leases along in the store, many in a statement.
func (s *Scheduler) renew(ctx context.Context) {
	due, within := s.work.due()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	lost, err := s.store.Renew(ctx, s.replica, due...)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.log.Warn("leases of runs were not renewed in the store", "runs", len(due), "error", err)
	}
	for _, id := range lost {
		s.log.Error("run is no longer ours", "run", id)
		s.work.lose(id, errors.Join(redlock.ErrLost, errTakenOver))
	}
}

func (s *Scheduler) beat(ctx context.Context) {
	err := s.store.Beat(ctx, store.Replica{Name: s.replica, Revision: s.revision, Started: s.started})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("replica could not report that it lives", "error", err)
	}
}

// payOwed writes the rows that the store was not there to take.
func (s *Scheduler) payOwed(ctx context.Context) {
	rows := s.owed.takeAll()
	if len(rows) == 0 {
		return
	}
	if _, err := s.record(ctx, rows...); err != nil {
		s.owed.add(rows...)
	}
}
