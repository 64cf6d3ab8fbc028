package redlock

import "time"

// An Event is one thing that a Locker did, for metrics and traces: see
// [Options.Observe]. How the masters are, [Locker.Status] says.
type Event struct {
	Op       Op // Take, Extend or Release
	Key      string
	Begun    time.Time
	Took     time.Duration
	Validity time.Duration // of a lease that was granted or extended
	Err      error
}

func (l *Locker) tell(op Op, key string, begun time.Time, validity time.Duration, err error) {
	if l.opts.Observe != nil {
		l.opts.Observe(Event{op, key, begun, time.Since(begun), validity, err})
	}
}

func (o Op) String() string { return [...]string{"take", "extend", "release", "ping", "load"}[o] }
