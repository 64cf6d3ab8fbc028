//go:build !linux

package redlock

import "time"

var started = time.Now()

// sinceBoot is no more than the monotonic clock where there is no clock that is
// known to run on during sleep.
func sinceBoot() time.Duration { return time.Since(started) }
