package redlock

import "time"

// A moment is an instant on two clocks: Go's monotonic one, and one that runs on
// while the machine is suspended, where the system has one. What is valid until a
// moment ends when either clock says so: a machine that wakes up must not believe in
// a lease that ended while it slept.
type moment struct {
	at   time.Time
	boot time.Duration
}

func (l *Locker) now() moment { return moment{time.Now(), l.boot()} }

func (m moment) add(d time.Duration) moment { return moment{m.at.Add(d), m.boot + d} }

// left is how long it is until the moment, by the clock that says less.
func (l *Locker) left(until moment) time.Duration {
	return min(time.Until(until.at), until.boot-l.boot())
}
