package scheduler

import (
	"context"
	"errors"
	"time"

	"quorate/jobs"
	"quorate/redlock"
)

// ErrNoJob: no job of that name is configured.
var ErrNoJob = errors.New("no such job")

type Scheduler struct{}

// Replica is the name of this process; Revision the hash of its jobs.
func (s *Scheduler) Replica() string    { return "" }
func (s *Scheduler) Revision() string   { return "" }
func (s *Scheduler) Started() time.Time { return time.Time{} }

// Jobs returns the jobs, sorted by name.
func (s *Scheduler) Jobs() []*jobs.Job { return nil }

// Masters says how the Redis masters are.
func (s *Scheduler) Masters() []redlock.Status { return nil }

// RunNow makes a manual tick of the job and sends it down the path of every
// tick. It returns as soon as the tick has its row: a running run, or one that
// was skipped or missed. The run goes on after ctx has ended.
func (s *Scheduler) RunNow(ctx context.Context, job string) (jobs.Run, error) {
	return jobs.Run{}, ErrNoJob
}
