//go:build unix

package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hertz is the unit of CPU time in /proc, the same on every Linux.
const hertz = 100

// A usage is what was consumed up to now.
type usage struct {
	at      time.Time
	client  time.Duration // CPU of this process, by getrusage
	redis   time.Duration // CPU of the masters, from /proc; 0 where there is none
	machine time.Duration // CPU of everybody, likewise; what a hypervisor took away counts
	allocs  uint64
	bytes   uint64
}

func usageNow(masters []*master) usage {
	var self syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &self) // fails for no caller of this
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	u := usage{
		at:     time.Now(),
		client: time.Duration(self.Utime.Nano() + self.Stime.Nano()), machine: machineCPU(),
		allocs: mem.Mallocs, bytes: mem.TotalAlloc,
	}
	for _, m := range masters {
		u.redis += processCPU(m.proc.Process.Pid)
	}
	return u
}

// foreign is the share of the machine's processors that went to others than this
// process and its masters between two points.
func (u usage) foreign(since usage) float64 {
	all := u.machine - since.machine
	if all == 0 {
		return 0
	}
	ours := u.client - since.client + u.redis - since.redis
	return max(0, float64(all-ours)/float64(u.at.Sub(since.at))/float64(runtime.NumCPU()))
}

func processCPU(pid int) time.Duration {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	_, afterName, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
	fields := strings.Fields(afterName)
	if len(fields) < 13 {
		return 0
	}
	return ticks(fields[11]) + ticks(fields[12])
}

func machineCPU() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(first)
	var busy time.Duration
	for i, field := range fields {
		switch i {
		case 1, 2, 3, 6, 7, 8: // user, nice, system, irq, softirq, steal
			busy += ticks(field)
		}
	}
	return busy
}

func ticks(field string) time.Duration {
	n, _ := strconv.ParseInt(field, 10, 64)
	return time.Duration(n) * time.Second / hertz
}
