package jobs

import (
	"fmt"
	"time"
)

// A Trigger says what made a tick.
type Trigger string

const (
	TriggerSchedule Trigger = "schedule"
	TriggerManual   Trigger = "manual"
)

// A Tick is a job and the instant at which it was due. Every replica names the
// same tick alike; that is how they know that it is the same one.
type Tick struct {
	Job     *Job
	Due     time.Time
	Attempt int // 1 for the first
	Trigger Trigger
	Params  Params // nil: the defaults
}

// Values are the values of the job's parameters in this tick.
func (t Tick) Values() Params {
	if t.Params != nil {
		return t.Params
	}
	values, _ := t.Job.Bind(nil) // a job whose ticks have no values was refused
	return values
}

// String names the tick: restock@2026-11-21T08:00:00Z, and #2 behind it for a
// second attempt.
func (t Tick) String() string {
	name := t.Job.Name + "@" + t.Due.UTC().Format(time.RFC3339Nano)
	if t.Attempt > 1 {
		name += fmt.Sprintf("#%d", t.Attempt)
	}
	return name
}

// Lock is the name of the lock under which the tick runs.
func (t Tick) Lock() string {
	if t.Job.Overlap == OverlapAllow {
		return t.Job.Lock + "@" + t.Due.UTC().Format(time.RFC3339Nano)
	}
	return t.Job.Lock
}
