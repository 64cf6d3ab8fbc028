//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A stage is what a turn is played on.
type stage struct {
	masters []*master
	time    time.Duration // how long a turn is measured
	warmup  time.Duration // before that, unmeasured: connections are made, pools filled
	settle  time.Duration // after it, before the keys that are left are counted

	calm     float64       // a turn is played again if others used more of the machine
	patience time.Duration // how much time is left for that
}

// A sample is what one turn measured. An operation is an attempt to acquire and,
// where it succeeded, the release; latencies are of the attempt alone.
type sample struct {
	Ops        int           `json:"ops"`
	Errors     int           `json:"errors,omitempty"` // attempts that ended otherwise than they should
	FirstError string        `json:"first_error,omitempty"`
	PerSecond  float64       `json:"ops_per_second,omitempty"`
	P50        time.Duration `json:"p50_ns,omitempty"`
	P99        time.Duration `json:"p99_ns,omitempty"`
	Gap        time.Duration `json:"gap_p50_ns,omitempty"`       // between a release and the next owner
	ClientCPU  float64       `json:"client_us_per_op,omitempty"` // µs of this process
	RedisCPU   float64       `json:"redis_us_per_op,omitempty"`  // µs of all masters
	Allocs     float64       `json:"allocs_per_op,omitempty"`
	Bytes      float64       `json:"bytes_per_op,omitempty"`
	Left       *float64      `json:"keys_left_per_1000_ops,omitempty"` // on all masters, after the settling
	Goroutines int           `json:"goroutines,omitempty"`             // the most at one time
	Foreign    float64       `json:"foreign_cpu"`                      // share of the machine that others used
}

// A load is goroutines that acquire and release, as fast as they can.
type load struct {
	contender  contender
	goroutines int
	contested  bool  // all try one key that somebody else holds; else each attempt has its own
	fault      fault // befalls one master when all is warm, another one in each round
}

// oneKey is the key of a contested load.
const oneKey = "bench:held"

func (l load) measure(ctx context.Context, st *stage, round int) (s sample, err error) {
	victim := st.masters[round%len(st.masters)]
	broken, err := victim.prepare(l.fault)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, broken.end(), empty(st.masters)) }()
	if l.contested {
		if err := occupy(st.masters, oneKey); err != nil {
			return s, err
		}
	}
	c, err := l.contender.open(l.addrs(st, victim, broken))
	if err != nil {
		return s, err
	}
	defer c.close()

	runtime.GC() // what the one before left is not ours to pay for
	crew := newCrew(c, l)
	crew.start(ctx)
	sleep(ctx, st.warmup)
	if err := broken.begin(); err != nil {
		crew.stop()
		return s, err
	}
	if l.fault != none {
		sleep(ctx, 2*st.warmup) // how it is afterwards, not how it came
	}
	s = crew.observe(ctx, st)
	if err := ctx.Err(); err != nil {
		return s, err
	}
	sleep(ctx, st.settle)
	if l.fault == none {
		left, err := l.left(st, s.Ops)
		s.Left = &left
		return s, err
	}
	return s, nil
}

func (l load) addrs(st *stage, victim *master, broken broken) []string {
	addrs := make([]string, len(st.masters))
	for i, m := range st.masters {
		addrs[i] = m.addr
		if m == victim {
			addrs[i] = broken.addr
		}
	}
	return addrs
}

func (l load) left(st *stage, ops int) (float64, error) {
	n, err := keys(st.masters)
	if l.contested {
		n -= len(st.masters) // the holder's
	}
	return 1000 * float64(n) / float64(max(1, ops)), err
}

// A crew is the goroutines of one turn.
type crew struct {
	client  client
	load    load
	hands   []hand
	working sync.WaitGroup
	phase   atomic.Int32
}

// The phases of a crew.
const (
	warming int32 = iota
	counting
	stopping
)

// A hand is one goroutine, and what it saw while it counted.
type hand struct {
	took       []time.Duration
	errors     int
	firstError error
}

func newCrew(c client, l load) *crew {
	w := &crew{client: c, load: l, hands: make([]hand, l.goroutines)}
	for i := range w.hands {
		w.hands[i].took = make([]time.Duration, 0, 1<<18/l.goroutines)
	}
	return w
}

func (w *crew) start(ctx context.Context) {
	for i := range w.hands {
		w.working.Go(func() { w.work(ctx, i) })
	}
}

func (w *crew) stop() {
	w.phase.Store(stopping)
	w.working.Wait()
}

func (w *crew) work(ctx context.Context, i int) {
	prefix, key := "bench:"+strconv.Itoa(i)+":", oneKey
	me := &w.hands[i]
	for n := 0; w.phase.Load() != stopping && ctx.Err() == nil; n++ {
		if !w.load.contested {
			key = prefix + strconv.Itoa(n)
		}
		took, err := w.once(ctx, key)
		if w.phase.Load() != counting {
			continue
		}
		if err == nil {
			me.took = append(me.took, took)
			continue
		}
		me.errors++
		if me.firstError == nil {
			me.firstError = err
		}
	}
}

// once is one operation. The error says that it did not go as it should.
func (w *crew) once(ctx context.Context, key string) (took time.Duration, err error) {
	start := time.Now()
	got, err := w.client.try(ctx, key)
	took = time.Since(start)
	if err != nil {
		if w.load.contested && w.client.taken(err) {
			err = nil
		}
		return took, err
	}
	if err := got.Release(); err != nil {
		return took, fmt.Errorf("release: %w", err)
	}
	if w.load.contested {
		return took, errors.New("it acquired a key that somebody else holds")
	}
	return took, nil
}

// observe counts for the stage's time, then stops the crew.
func (w *crew) observe(ctx context.Context, st *stage) sample {
	before := usageNow(st.masters)
	w.phase.Store(counting)
	most := mostGoroutines(ctx, st.time)
	w.phase.Store(stopping)
	after := usageNow(st.masters)
	w.stop()

	s := sample{Goroutines: most, Foreign: after.foreign(before)}
	var took []time.Duration
	for _, h := range w.hands {
		took = append(took, h.took...)
		s.Errors += h.errors
		if s.FirstError == "" && h.firstError != nil {
			s.FirstError = h.firstError.Error()
		}
	}
	s.Ops = len(took)
	s.PerSecond = float64(s.Ops) / after.at.Sub(before.at).Seconds()
	slices.Sort(took)
	s.P50, s.P99 = percentile(took, 50), percentile(took, 99)
	ops := float64(max(1, s.Ops))
	s.ClientCPU = micros(after.client-before.client) / ops
	s.RedisCPU = micros(after.redis-before.redis) / ops
	s.Allocs = float64(after.allocs-before.allocs) / ops
	s.Bytes = float64(after.bytes-before.bytes) / ops
	return s
}

// mostGoroutines looks now and then for a while.
func mostGoroutines(ctx context.Context, during time.Duration) int {
	most := 0
	for end := time.Now().Add(during); time.Now().Before(end) && ctx.Err() == nil; {
		most = max(most, runtime.NumGoroutine())
		sleep(ctx, min(20*time.Millisecond, time.Until(end)))
	}
	return most
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// percentile of sorted values; 0 if there are none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*p/100]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
