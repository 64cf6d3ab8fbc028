package scheduler

import (
	"container/heap"
	"sync"
	"time"

	"quorate/jobs"
)

// A timetable knows the next tick of every job, the earliest first, and hands over
// what has come due: each tick once. It looks at no clock of its own.
type timetable struct {
	due func(jobs.Tick)

	mu   sync.Mutex
	next departures
}

// A departure is the next tick of a job.
type departure struct {
	job *jobs.Job
	due time.Time
}

// earlyTimer is how much before its time a tick may be handed over: a timer can fire
// early when the wall clock was set, and a tick must not wait for the next one then.
const earlyTimer = 20 * time.Millisecond

func newTimetable(all []*jobs.Job, from time.Time, due func(jobs.Tick)) *timetable {
	t := &timetable{due: due}
	for _, j := range all {
		if next := j.Schedule().Next(from); !next.IsZero() {
			t.next = append(t.next, departure{j, next})
		}
	}
	heap.Init(&t.next)
	return t
}

// handOver hands over every tick that is due by now, and returns when the next one is,
// or the zero time. Ticks that are too old to be started are left to the search for
// gaps.
func (t *timetable) handOver(now time.Time) (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.next) > 0 && !t.next[0].due.After(now.Add(earlyTimer)) {
		d := &t.next[0]
		after := d.due
		if oldest := now.Add(-d.job.StartDeadline.D()); after.Before(oldest) {
			after = oldest
		} else {
			t.due(jobs.Tick{Job: d.job, Due: d.due, Attempt: 1, Trigger: jobs.TriggerSchedule})
		}
		if d.due = d.job.Schedule().Next(after); d.due.IsZero() {
			heap.Pop(&t.next)
		} else {
			heap.Fix(&t.next, 0)
		}
	}
	if len(t.next) == 0 {
		return time.Time{}
	}
	return t.next[0].due
}

// departures are a heap, the earliest on top.
type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }
func (d *departures) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = departure{} // for the garbage collector
	*d = (*d)[:last]
	return x
}
