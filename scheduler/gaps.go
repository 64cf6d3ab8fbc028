package scheduler

import (
	"context"
	"time"

	"quorate/jobs"
	"quorate/store"
)

const (
	// gapPatience is how long after a tick's start deadline its row may still be on
	// the way before the tick counts as overlooked.
	gapPatience = 10 * time.Second
	// gapReach is how far back the search for gaps goes.
	gapReach = 24 * time.Hour
	// gapChunk is how many due times are compared with rows at once.
	gapChunk = 1000
)

// register tells the store which jobs there are: it remembers since when each has
// had its schedule, and so from when on its ticks must be accounted for.
func (s *Scheduler) register(ctx context.Context) error {
	_, err := s.store.Register(ctx, s.revision, s.states()...)
	return err
}

func (s *Scheduler) states() []store.JobState {
	states := make([]store.JobState, len(s.names))
	for i, j := range s.Jobs() {
		states[i] = store.JobState{Name: j.Name, Schedule: j.Schedule().String()}
	}
	return states
}

// accountForGaps compares the ticks that were due with the rows that there are, and
// writes the missing ones as missed. Every replica does so; a row is inserted once.
func (s *Scheduler) accountForGaps(ctx context.Context) {
	states, err := s.store.Register(ctx, s.revision, s.states()...)
	if err == nil {
		var now time.Time
		if now, err = s.store.Now(ctx); err == nil {
			for _, state := range states {
				if err = s.accountFor(ctx, s.jobs[state.Name], state.Since, now); err != nil {
					break
				}
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("ticks without a row were not looked for", "error", err)
	}
}

func (s *Scheduler) accountFor(ctx context.Context, job *jobs.Job, since, now time.Time) error {
	if job == nil || job.Schedule().Never() {
		return nil
	}
	from, to := now.Add(-gapReach), now.Add(-job.StartDeadline.D()-gapPatience)
	if from.Before(since) {
		from = since
	}
	if seen := s.accounted[job.Name]; from.Before(seen) {
		from = seen
	}
	for from.Before(to) {
		due := dueBetween(job.Schedule(), from, to)
		if len(due) == 0 {
			break
		}
		last := due[len(due)-1]
		have, err := s.store.Dues(ctx, job.Name, due[0], last)
		if err != nil {
			return err
		}
		if _, err := s.record(ctx, s.overlooked(job, due, have)...); err != nil {
			return err
		}
		from = last
	}
	s.accounted[job.Name] = from
	return nil
}

// dueBetween returns the first due times after from and before to, a chunk of them.
func dueBetween(schedule jobs.Schedule, from, to time.Time) []time.Time {
	var due []time.Time
	for t := schedule.Next(from); !t.IsZero() && t.Before(to) && len(due) < gapChunk; t = schedule.Next(t) {
		due = append(due, t)
	}
	return due
}

func (s *Scheduler) overlooked(job *jobs.Job, due, have []time.Time) []jobs.Run {
	has := map[int64]bool{}
	for _, t := range have {
		has[t.UnixMicro()] = true
	}
	var missing []jobs.Run
	for _, t := range due {
		if has[t.UnixMicro()] {
			continue
		}
		tick := jobs.Tick{Job: job, Due: t, Attempt: 1}
		missing = append(missing, jobs.Run{
			Job: job.Name, Due: t, Attempt: 1, Trigger: jobs.TriggerSchedule,
			Status: jobs.Missed, Reason: jobs.ReasonNoReplica, Error: "no replica got to it within its start deadline",
			Lock: tick.Lock(), Replica: s.replica, Revision: s.revision,
		})
	}
	return missing
}
