//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpu is what this process and the server have used so far; zero where the system
// does not say (the server's, on others than Linux).
func (b *bench) cpu() (client, server time.Duration) {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
		client = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	if b.server == nil {
		return client, 0
	}
	// What has ended counts for the postmaster, what lives for itself.
	postmaster := strconv.Itoa(b.server.proc.Process.Pid)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // fails on bad patterns alone
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended just now
		}
		pid, rest, _ := strings.Cut(string(text), " ")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:]) // state, ppid, …, utime is the 12th
		switch postmaster {
		case pid:
			server += ticks(fields[11:15])
		case fields[1]:
			server += ticks(fields[11:13])
		}
	}
	return client, server
}

// ticks adds up times as Linux tells them, in hundredths of a second.
func ticks(fields []string) (sum time.Duration) {
	for _, f := range fields {
		var n time.Duration
		fmt.Sscan(f, &n)
		sum += n * 10 * time.Millisecond
	}
	return sum
}
