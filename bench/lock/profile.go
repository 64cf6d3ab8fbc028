//go:build unix

package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profile begins the profiles that are wanted. finish writes them.
func profile(cpu, mem string) (finish func() error, err error) {
	var cpuFile *os.File
	if cpu != "" {
		if cpuFile, err = os.Create(cpu); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpuFile); err != nil {
			return nil, errors.Join(err, cpuFile.Close())
		}
	}
	if mem != "" {
		runtime.MemProfileRate = 4 << 10 // finer than the default: a turn allocates little
	}
	return func() error {
		var cpuErr error
		if cpuFile != nil {
			pprof.StopCPUProfile()
			cpuErr = cpuFile.Close()
		}
		return errors.Join(cpuErr, writeAllocations(mem))
	}, nil
}

func writeAllocations(name string) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	runtime.GC() // what was allocated since the last one is not in the profile yet
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
