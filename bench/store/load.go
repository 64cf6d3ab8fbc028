//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A subject is something that writes rows. Its work is one call by one caller,
// timed by itself: how many rows it wrote, and how long the call took of which
// latencies are told.
type subject struct {
	name string
	open func(ctx context.Context, b *bench) (worker, error)
}

type worker struct {
	work  func(ctx context.Context, caller, n int) (rows int, took time.Duration, err error)
	close func()
}

// A sample is what one turn of one subject measured.
type sample struct {
	PerSecond float64       `json:"rows_per_second"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	Client    time.Duration `json:"client_cpu_per_row_ns"`
	Server    time.Duration `json:"server_cpu_per_row_ns"`
}

// A turn lets a number of callers work, as fast as they can, and measures them
// once they are warm.
func turn(ctx context.Context, b *bench, s subject, callers int) (sample, error) {
	w, err := s.open(ctx, b)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", s.name, err)
	}
	defer w.close()
	work, stop := context.WithCancel(ctx)
	defer stop()
	client, server := b.cpu()
	begin := time.Now().Add(b.warmup)
	end := begin.Add(b.time)
	crew := make([]member, callers)
	var wait sync.WaitGroup
	for i := range crew {
		wait.Go(func() { crew[i].run(work, w, i, begin, end) })
	}
	wait.Wait()
	clientNow, serverNow := b.cpu()
	var rows, all int
	var took []time.Duration
	for _, m := range crew {
		err = errors.Join(err, m.err)
		rows += m.rows
		all += m.all
		took = append(took, m.took...)
	}
	if err != nil || len(took) == 0 {
		return sample{}, fmt.Errorf("%s: %d calls in time: %w", s.name, len(took), err)
	}
	slices.Sort(took)
	at := func(share float64) time.Duration { return took[int(share*float64(len(took)-1))] }
	each := time.Duration(all)
	return sample{float64(rows) / b.time.Seconds(), at(0.5), at(0.99), (clientNow - client) / each, (serverNow - server) / each}, nil
}

// A member is one caller and what it measured between begin and end.
type member struct {
	rows int
	all  int // with those before begin and after end
	took []time.Duration
	err  error
}

func (m *member) run(ctx context.Context, w worker, caller int, begin, end time.Time) {
	for n := 0; ; n++ {
		rows, took, err := w.work(ctx, caller, n)
		now := time.Now()
		if err != nil {
			m.err = fmt.Errorf("caller %d: %w", caller, err)
			return
		}
		m.all += rows
		if now.After(end) {
			return
		}
		if now.After(begin) {
			m.rows += rows
			m.took = append(m.took, took)
		}
	}
}
