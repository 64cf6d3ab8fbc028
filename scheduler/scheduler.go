// Package scheduler turns due times into runs: at most one run for each tick,
// whichever replica gets to it, and one row for each tick, whatever became of it.
//
// Read trigger.go first: it is the path of every tick, scheduled or by hand, from
// top to bottom. This file makes the ticks, by timetable.go, and is the only one that knows gocron.
// Others hold what surrounds the path: settle.go says what becomes of a tick that
// could not run, keeping.go what goes on while runs are under way, gaps.go what
// was overlooked.
//
// What may live here: decisions about ticks. What may not: SQL, HTTP, a Redis
// command, or any acquire, claim or finish outside trigger.go.
//
//	s, err := scheduler.New(scheduler.Config{Replica: "a", Jobs: all, Locker: locker, Store: st, Steps: executor})
//	err = s.Run(ctx, 30*time.Second) // ticks until ctx ends, then lets runs finish
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"quorate/jobs"
	"quorate/jobs/steps"
	"quorate/redlock"
	"quorate/store"
	"quorate/store/journal"
)

// Errors that a caller branches on.
var (
	// ErrNoJob: no job of that name is configured.
	ErrNoJob = errors.New("no such job")
	// ErrDraining: this replica takes no more ticks; ask another one.
	ErrDraining = errors.New("this replica is shutting down")
)

// Config is what a Scheduler is made of. All fields but Journal, Log and Ended are needed.
type Config struct {
	Replica string // the name of this process, unlike that of any other
	Jobs    []*jobs.Job
	Locker  *redlock.Locker
	Store   store.Store
	Steps   *steps.Executor

	// Journal keeps how runs ended while the store was away; nil: what the store does
	// not take within a minute is lost with the replica.
	Journal *journal.Journal

	Log   *slog.Logger   // nil: say nothing
	Ended func(jobs.Run) // called for each row that this replica wrote or finished
}

// A Scheduler is one replica.
type Scheduler struct {
	replica  string
	revision string
	started  time.Time
	jobs     map[string]*jobs.Job
	names    []string // sorted

	locker *redlock.Locker
	store  store.Store
	steps  *steps.Executor
	log    *slog.Logger
	ended  func(jobs.Run)

	work    workforce
	journal *journal.Journal // nil: none
	owed    ledger           // rows that the store was not there to take
	// reapFrom is when lost runs are looked for again; only reap uses it.
	reapFrom time.Time
	// accounted says until when the search for gaps has seen each job's ticks; only
	// that search uses it.
	accounted map[string]time.Time
	ready     chan struct{}
}

// New returns a replica that does nothing yet. The jobs must have been prepared.
func New(cfg Config) (*Scheduler, error) {
	s := &Scheduler{
		replica: cfg.Replica, started: time.Now(), jobs: map[string]*jobs.Job{},
		locker: cfg.Locker, store: cfg.Store, steps: cfg.Steps, journal: cfg.Journal, log: cfg.Log, ended: cfg.Ended,
		ready: make(chan struct{}), accounted: map[string]time.Time{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.ended == nil {
		s.ended = func(jobs.Run) {}
	}
	s.log = s.log.With("replica", s.replica)
	for _, j := range cfg.Jobs {
		if s.jobs[j.Name] != nil {
			return nil, fmt.Errorf("two jobs are named %q", j.Name)
		}
		s.jobs[j.Name] = j
		s.names = append(s.names, j.Name)
	}
	slices.Sort(s.names)
	s.work.init()
	var err error
	s.revision, err = jobs.Revision(s.Jobs()...)
	return s, err
}

// Replica is the name of this process; Revision the hash of its jobs.
func (s *Scheduler) Replica() string    { return s.replica }
func (s *Scheduler) Revision() string   { return s.revision }
func (s *Scheduler) Started() time.Time { return s.started }

// Jobs returns the jobs, sorted by name.
func (s *Scheduler) Jobs() []*jobs.Job {
	all := make([]*jobs.Job, len(s.names))
	for i, name := range s.names {
		all[i] = s.jobs[name]
	}
	return all
}

// Masters says how the Redis masters are.
func (s *Scheduler) Masters() []redlock.Status { return s.locker.Status() }

// Run makes ticks until ctx ends. Then it lets runs finish for as long as drain
// says, cancels the rest, and returns when every run has its row and every lock is
// released.
func (s *Scheduler) Run(ctx context.Context, drain time.Duration) error {
	err := s.register(ctx)
	if ctx.Err() != nil {
		return nil // told to stop before it began
	}
	if err != nil {
		return fmt.Errorf("register jobs: %w", err)
	}
	keeping := s.startKeeping()
	defer keeping.stop()
	stopTicking, err := s.startTicking()
	if err != nil {
		return err
	}
	close(s.ready)
	s.log.Info("scheduler started", "jobs", len(s.names), "revision", s.revision)

	<-ctx.Done()
	stopTicking()
	s.work.drain(drain)
	s.log.Info("scheduler stopped")
	return nil
}

// Ready is closed when the scheduler ticks.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// RunNow makes a manual tick of the job, with these parameters, and sends it down the
// path of every tick. It returns as soon as the tick has its row: a running run, or one that was
// skipped or missed. The run goes on after ctx has ended.
func (s *Scheduler) RunNow(ctx context.Context, job string, given map[string]any) (jobs.Run, error) {
	j := s.jobs[job]
	if j == nil {
		return jobs.Run{}, fmt.Errorf("%w: %q (there are: %s)", ErrNoJob, job, strings.Join(s.names, ", "))
	}
	params, err := j.Bind(given)
	if err != nil {
		return jobs.Run{}, fmt.Errorf("job %q: %w", job, err)
	}
	tick := jobs.Tick{Job: j, Due: time.Now().UTC().Truncate(time.Microsecond), Attempt: 1, Trigger: jobs.TriggerManual, Params: params}
	begun := make(chan jobs.Run, 1)
	over := make(chan error, 1)
	if !s.work.start(func(ctx context.Context) {
		run, err := s.settle(ctx, tick, func(r jobs.Run) { begun <- r })
		if err == nil && len(begun) == 0 {
			begun <- run
		}
		over <- err
	}) {
		return jobs.Run{}, ErrDraining
	}
	select {
	case run := <-begun:
		return run, nil
	case err := <-over:
		select {
		case run := <-begun:
			return run, nil
		default:
			return jobs.Run{}, err
		}
	case <-ctx.Done():
		return jobs.Run{}, context.Cause(ctx)
	}
}

// startTicking gives the timetable to gocron, which is the clock and nothing else: it
// tells a task neither when it was due nor lets it outlive a shutdown, and each of its
// jobs passes two of its loops at each fire. So it has one job, for all of ours.
func (s *Scheduler) startTicking() (stop func(), err error) {
	clock, err := gocron.NewScheduler(gocron.WithLocation(time.UTC))
	if err != nil {
		return nil, fmt.Errorf("start the clock: %w", err)
	}
	table := newTimetable(s.Jobs(), time.Now(), s.due)
	_, err = clock.NewJob(
		gocron.CronJob("the next tick that is due", false),
		gocron.NewTask(func() { table.handOver(time.Now()) }),
		gocron.WithCronImplementation(gocronSchedule{table}),
		gocron.WithEventListeners(gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, _ string, what any) {
			s.log.Error("handing over ticks panicked", "panic", what)
		})),
	)
	if err != nil {
		return nil, fmt.Errorf("start the clock: %w", err)
	}
	clock.Start()
	return func() { _ = clock.Shutdown() }, nil // the task only hands over, and is not cut short
}

// due takes a tick that has come due; a little before, perhaps.
func (s *Scheduler) due(tick jobs.Tick) {
	s.work.start(func(ctx context.Context) {
		sleep(ctx, time.Until(tick.Due))
		_, _ = s.settle(ctx, tick, nil) // it has its row, or another replica writes it
	})
}

// gocronSchedule shows a timetable to gocron.
type gocronSchedule struct{ table *timetable }

func (g gocronSchedule) IsValid(string, *time.Location, time.Time) error { return nil }

// Next hands over what has come due meanwhile, so that nothing waits for a fire that
// gocron has left out because it was late. It never returns the zero time, on which
// gocron would spin for ever.
func (g gocronSchedule) Next(after time.Time) time.Time {
	if next := g.table.handOver(time.Now()); !next.IsZero() {
		return next
	}
	return after.AddDate(100, 0, 0)
}
