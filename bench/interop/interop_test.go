//go:build unix

// Package interop proves that quorate/redlock and other lock clients on the same Redis
// masters exclude each other, so that a fleet can move from one to the other while both
// run. It holds tests alone: against redsync, and against what the other clients send.
package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/redlock"
)

// rounds is how often each side is tried, in each direction.
const rounds = 1000

// ttl is long, so that no lock ends by itself and no client's share of it is short.
const ttl = time.Minute

// A client is a lock library over some masters.
type client interface {
	// try makes one attempt to lock the key.
	try(key string) (held, error)
	// taken says whether try failed because somebody else has the key.
	taken(err error) bool
}

// What is held knows the value that it wrote, can be prolonged, and is given back.
type held interface {
	value() string
	extend() error
	release() error
}

func TestWeAndRedsyncExcludeEachOther(t *testing.T) {
	masters := start(t, 5)
	alternate(t, newQuorate(t, masters), newRedsync(masters))
}

func TestWeAndRedsyncThatFailsFastExcludeEachOther(t *testing.T) {
	masters := start(t, 5)
	alternate(t, newQuorate(t, masters), newRedsync(masters, failFast))
}

// What node-redlock, redlock-py, redlock-php and redlock-rb say on the wire.
func TestWeAndAPlainRedlockExcludeEachOther(t *testing.T) {
	masters := start(t, 5)
	alternate(t, newQuorate(t, masters), plain{masters, script})
}

// What LockTake of StackExchange.Redis, and whoever locks on one server, says.
func TestWeAndALockOnOneServerExcludeEachOther(t *testing.T) {
	masters := start(t, 1)
	alternate(t, newQuorate(t, masters), plain{masters, transaction})
}

// alternate has one side hold the lock while the other is refused, and then the other
// way round.
func alternate(t *testing.T, ours quorate, theirs client) {
	t.Helper()
	for n := range rounds {
		key := fmt.Sprint("k", n%10)
		mine := lock(t, ours, key)
		wantTaken(t, theirs, key)
		finish(t, mine)

		other := lock(t, theirs, key)
		err := wantTaken(t, ours, key)
		var taken *redlock.TakenError
		if errors.As(err, &taken) && taken.Held && taken.Note != other.value() {
			t.Errorf("taken by %q, and we are told %q", other.value(), taken.Note)
		}
		finish(t, other)
		if t.Failed() {
			t.Fatalf("round %d of %d", n+1, rounds)
		}
	}
}

// lock tries until the key is had: a release is confirmed by a quorum, and the rest of
// the masters may be an instant behind.
func lock(t *testing.T, c client, key string) held {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); ; {
		h, err := c.try(key)
		if err == nil {
			return h
		}
		if !c.taken(err) || time.Now().After(deadline) {
			t.Fatalf("%T cannot lock %s: %v", c, key, err)
		}
	}
}

func wantTaken(t *testing.T, c client, key string) error {
	t.Helper()
	_, err := c.try(key)
	if err == nil {
		t.Fatalf("%T got a lock that is held", c)
	}
	if !c.taken(err) {
		t.Errorf("%T was refused, and not because the lock is held: %v", c, err)
	}
	return err
}

// finish proves that the other's refused attempt has taken nothing away.
func finish(t *testing.T, h held) {
	t.Helper()
	if err := h.extend(); err != nil {
		t.Errorf("%T, extend after the other was refused: %v", h, err)
	}
	if err := h.release(); err != nil {
		t.Errorf("%T, release: %v", h, err)
	}
}

// All at once, and each for itself: whoever gets the lock must be alone.
func TestAllTogetherThereIsNeverMoreThanOneOwner(t *testing.T) {
	masters := start(t, 5)
	clients := []client{newQuorate(t, masters), newQuorate(t, masters), newRedsync(masters),
		newRedsync(masters, failFast), plain{masters, script}}
	grants := make([]atomic.Int32, len(clients))
	var owners, all atomic.Int32
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for ctx.Err() == nil && (all.Load() < rounds || grants[i].Load() == 0) {
				h, err := c.try("one")
				if err != nil {
					pause(10 * time.Millisecond) // or split votes follow one another
					continue
				}
				if n := owners.Add(1); n != 1 {
					t.Errorf("%T is one of %d owners", c, n)
				}
				all.Add(1)
				grants[i].Add(1)
				pause(time.Millisecond)
				owners.Add(-1)
				if err := h.release(); err != nil {
					t.Errorf("%T, release: %v", c, err)
				}
				pause(10 * time.Millisecond) // let others
			}
		})
	}
	wg.Wait()
	for i := range clients {
		t.Logf("%T: %d of %d grants", clients[i], grants[i].Load(), all.Load())
	}
	if all.Load() == 0 {
		t.Error("nobody ever got the lock")
	}
}

func pause(most time.Duration) { time.Sleep(rand.N(most)) }
