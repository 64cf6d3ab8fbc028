package redlock

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time since the machine was started, sleep included.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
