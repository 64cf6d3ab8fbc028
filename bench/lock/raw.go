//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"
)

// The raw subjects measure what the wire and the servers cost by themselves: a
// plain connection for each master, one goroutine, the SET of a lock, no library.

// A wire is a plain connection to a master.
type wire struct{ net.Conn }

func dial(masters []*master) (wires []wire, closeAll func(), err error) {
	closeAll = func() {
		for _, w := range wires {
			_ = w.Close()
		}
	}
	for _, m := range masters {
		conn, err := net.Dial("tcp", m.addr)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		wires = append(wires, wire{conn})
	}
	return wires, closeAll, nil
}

// set is a lock's SET of a key of its own.
func set(n int) []byte {
	key := "raw:" + strconv.Itoa(n)
	return fmt.Appendf(nil, "*6\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$22\r\n0123456789abcdefghijkl\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n8000\r\n",
		len(key), key)
}

func (w wire) ok() error {
	var answer [5]byte
	if _, err := io.ReadFull(w, answer[:]); err != nil {
		return err
	}
	if string(answer[:]) != "+OK\r\n" {
		return fmt.Errorf("raw SET: answer %q", answer)
	}
	return nil
}

func (w wire) roundTrip(request []byte) error {
	if _, err := w.Write(request); err != nil {
		return err
	}
	return w.ok()
}

// rawHot is one round trip to the third-fastest master, each asked without a pause
// for its share of the time: the case in which everything is awake.
func rawHot(ctx context.Context, st *stage, _ int) (sample, error) {
	return raw(st, func(wires []wire, took [][]time.Duration) error {
		n := 0
		for i, w := range wires {
			for end := time.Now().Add(st.time / 20); time.Now().Before(end) && ctx.Err() == nil; n++ {
				if err := timed(&took[i], set(n), w.roundTrip); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	})
}

// rawInTurn is the same, but the masters are asked one after the other, so that
// each has slept when its turn comes, as it has when one goroutine takes a lock.
func rawInTurn(ctx context.Context, st *stage, _ int) (sample, error) {
	return raw(st, func(wires []wire, took [][]time.Duration) error {
		for n, end := 0, time.Now().Add(st.time/4); time.Now().Before(end) && ctx.Err() == nil; n++ {
			for i, w := range wires {
				if err := timed(&took[i], set(n), w.roundTrip); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	})
}

// rawQuorum is one SET to all five at once, until three have answered, from one
// goroutine: the least that a quorum can cost here.
func rawQuorum(ctx context.Context, st *stage, _ int) (sample, error) {
	return raw(st, func(wires []wire, took [][]time.Duration) error {
		quorum := len(wires)/2 + 1
		for n, end := 0, time.Now().Add(st.time/4); time.Now().Before(end) && ctx.Err() == nil; n++ {
			err := timed(&took[quorum-1], set(n), func(request []byte) error {
				return errors.Join(sendAll(wires, request), readAll(wires[:quorum]))
			})
			if err := errors.Join(err, readAll(wires[quorum:])); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

func sendAll(wires []wire, request []byte) error {
	for _, w := range wires {
		if _, err := w.Write(request); err != nil {
			return err
		}
	}
	return nil
}

func readAll(wires []wire) error {
	for _, w := range wires {
		if err := w.ok(); err != nil {
			return err
		}
	}
	return nil
}

func timed(took *[]time.Duration, request []byte, do func([]byte) error) error {
	start := time.Now()
	err := do(request)
	*took = append(*took, time.Since(start))
	return err
}

// raw runs a measurement and returns the latencies of the third-fastest master.
func raw(st *stage, measure func([]wire, [][]time.Duration) error) (s sample, err error) {
	wires, closeAll, err := dial(st.masters)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, empty(st.masters)) }()
	defer closeAll()
	took := make([][]time.Duration, len(wires))
	before := usageNow(st.masters)
	if err := measure(wires, took); err != nil {
		return s, err
	}
	s.Foreign = usageNow(st.masters).foreign(before)
	took = slices.DeleteFunc(took, func(t []time.Duration) bool { return len(t) == 0 })
	for _, t := range took {
		slices.Sort(t)
		s.Ops += len(t)
	}
	slices.SortFunc(took, func(a, b []time.Duration) int { return int(percentile(a, 50) - percentile(b, 50)) })
	third := took[len(took)/2]
	s.P50, s.P99 = percentile(third, 50), percentile(third, 99)
	return s, nil
}
