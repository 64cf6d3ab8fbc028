package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// The pause before the next try of somebody who waits: short at first, because a
// vote that was split is over in a moment, and long in the end, because the masters
// tell when a key is gone.
const (
	firstPause = 2 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// Wait is Acquire, again and again until it succeeds or ctx ends. It tries when the
// holder has released the lock, which a master tells, and after a random pause in
// any case, because being told is a courtesy that a fault can cost. In one Locker,
// who came first is woken first.
//
// The error wraps that of the last attempt and that of ctx. What a further attempt
// cannot mend, like a key that is too long, is returned at once.
func (l *Locker) Wait(ctx context.Context, key string, ttl time.Duration, note string) (*Lease, error) {
	pause := firstPause
	var inTheWay error
	for {
		lease, err := l.Acquire(ctx, key, ttl, note)
		if err == nil {
			return lease, nil
		}
		if mayPass(err) {
			inTheWay = err
		} else if ctx.Err() == nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("wait for %q: %w", key, context.Cause(ctx)), inTheWay)
		}
		freed := l.waiters.join(key)
		l.tellWhenFree(key, err)
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-freed:
			pause = firstPause
		case <-timer.C:
			pause = min(2*pause, lastPause)
		case <-ctx.Done():
		}
		timer.Stop()
		l.waiters.leave(key, freed)
	}
}

func mayPass(err error) bool {
	return errors.Is(err, ErrTaken) || errors.Is(err, ErrNoQuorum) || errors.Is(err, ErrValidity)
}

// tellWhenFree asks a master that has the key to tell when it is gone.
func (l *Locker) tellWhenFree(key string, err error) {
	var taken *TakenError
	if !errors.As(err, &taken) || taken.at < 0 {
		return
	}
	if m, ok := l.masters[taken.at].(*redisMaster); ok {
		m.watcher.watch(key)
	}
}

// waiters are those who wait for a key, in the order in which they came.
type waiters struct {
	mu    sync.Mutex
	byKey map[string][]chan struct{}
}

func (w *waiters) join(key string) chan struct{} {
	freed := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byKey[key] = append(w.byKey[key], freed)
	return freed
}

func (w *waiters) leave(key string, freed chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := slices.DeleteFunc(w.byKey[key], func(c chan struct{}) bool { return c == freed })
	if w.byKey[key] = rest; len(rest) == 0 {
		delete(w.byKey, key)
	}
}

// freed wakes the first who waits for the key. One is enough: whoever gets the lock
// wakes the next one with its release.
func (w *waiters) freed(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.byKey[key]; len(all) > 0 {
		all[0] <- struct{}{} // it has room, and leaves the list
		w.byKey[key] = all[1:]
	}
}

// allFreed wakes one of the waiters of every key.
func (w *waiters) allFreed() {
	w.mu.Lock()
	keys := make([]string, 0, len(w.byKey))
	for key := range w.byKey {
		keys = append(keys, key)
	}
	w.mu.Unlock()
	for _, key := range keys {
		w.freed(key)
	}
}
