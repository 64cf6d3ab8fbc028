//go:build unix

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A queue is goroutines that all want one key: each waits for it, holds it for a
// while, gives it back and pauses.
type queue struct {
	contender contender
	waiters   int
}

const (
	holdFor  = 2 * time.Millisecond
	pauseFor = 5 * time.Millisecond
)

// An owner is one time that somebody had the key.
type owner struct {
	asked, got, gave time.Time
}

func (q queue) measure(ctx context.Context, st *stage, _ int) (s sample, err error) {
	defer func() { err = errors.Join(err, empty(st.masters)) }()
	addrs := make([]string, len(st.masters))
	for i, m := range st.masters {
		addrs[i] = m.addr
	}
	c, err := q.contender.open(addrs)
	if err != nil {
		return s, err
	}
	defer c.close()

	before := usageNow(st.masters)
	enough, cancel := context.WithTimeout(ctx, st.warmup+st.time)
	defer cancel()
	var mu sync.Mutex
	var owners []owner
	var working sync.WaitGroup
	for range q.waiters {
		working.Go(func() {
			for enough.Err() == nil {
				o, err := q.once(ctx, enough, c)
				mu.Lock()
				switch {
				case err == nil:
					owners = append(owners, o)
				case enough.Err() == nil:
					s.Errors++
					s.FirstError = err.Error()
				}
				mu.Unlock()
				sleep(enough, pauseFor)
			}
		})
	}
	working.Wait()
	after := usageNow(st.masters)
	s.judge(owners)
	s.Foreign = after.foreign(before)
	s.PerSecond = float64(s.Ops) / after.at.Sub(before.at).Seconds()
	s.ClientCPU = micros(after.client-before.client) / float64(max(1, s.Ops))
	s.RedisCPU = micros(after.redis-before.redis) / float64(max(1, s.Ops))
	return s, ctx.Err()
}

func (q queue) once(ctx, enough context.Context, c client) (o owner, err error) {
	o.asked = time.Now()
	got, err := c.wait(enough, oneKey)
	if err != nil {
		return o, err
	}
	o.got = time.Now()
	sleep(ctx, holdFor)
	o.gave = time.Now()
	return o, got.Release()
}

// judge says how long they waited, and how long the key was nobody's although
// somebody wanted it.
func (s *sample) judge(owners []owner) {
	slices.SortFunc(owners, func(a, b owner) int { return a.got.Compare(b.got) })
	var waits, gaps []time.Duration
	for i, o := range owners {
		waits = append(waits, o.got.Sub(o.asked))
		if i > 0 && o.asked.Before(owners[i-1].gave) {
			gaps = append(gaps, o.got.Sub(owners[i-1].gave))
		}
	}
	slices.Sort(waits)
	slices.Sort(gaps)
	s.Ops = len(owners)
	s.P50, s.P99, s.Gap = percentile(waits, 50), percentile(waits, 99), percentile(gaps, 50)
}
