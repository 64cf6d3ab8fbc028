package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// An attempt is a lock that a client asked for, what it believes of it, and what is
// promised about it.
type attempt struct {
	world   *world
	process *process
	note    string
	key     int
	ttl     time.Duration
	begun   time.Time
	expires time.Time // when the janitor gives up, but for SETs that were lost
	lost    [5]bool   // by master: one was, and may come late

	stage stage
	ended time.Time
	lease *Lease
	until time.Time       // the end of validity as the client sees it, in true time
	held  context.Context // of Keep
	value int             // what it found
	wrote bool            // and added one to
}

type stage byte

const (
	asking   stage = iota
	holding        // and perhaps not valid any more
	finished       // nobody wants its keys
	deserted       // nor is anybody there to remove them
)

func keyName(key int) string { return fmt.Sprintf("key%d", key) }

func (w *world) asks(c *client, key int, ttl time.Duration, n uint64) *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &attempt{world: w, process: c.process, note: fmt.Sprint(c.name(), n), key: key, ttl: ttl, begun: time.Now()}
	a.expires = a.begun.Add(ttl)
	c.current, w.attempts[a.note] = a, a
	w.counts[attempts]++
	w.note("%s asks for key%d for %s", a.note, key, ttl)
	return a
}

// ends is called with the world's lock.
func (a *attempt) ends(how stage) {
	if a.stage < finished {
		a.stage, a.ended = how, time.Now()
	}
}

func (a *attempt) refused(err error) {
	w := a.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.stage == deserted {
		return
	}
	a.ends(finished)
	w.note("%s is refused: %v", a.note, err)
	var taken *TakenError
	switch {
	case errors.As(err, &taken) && taken.Held:
		w.counts[refusedTaken]++
	case errors.As(err, &taken):
		w.counts[refusedSplit]++
	case errors.Is(err, ErrNoQuorum):
		w.counts[refusedNoQuorum]++
	case errors.Is(err, ErrValidity):
		w.counts[refusedLate]++
	case errors.Is(err, context.Canceled):
		w.counts[refusedCancelled]++
	default:
		w.breaks("neither a lease nor a reason: %v", err)
	}
}

// granted is where a client begins to believe that it has the lock.
func (a *attempt) granted(lease *Lease) {
	w := a.world
	w.mu.Lock()
	defer w.mu.Unlock()
	a.lease = lease
	if a.stage == deserted {
		return // it was killed at the last moment
	}
	w.counts[grants]++
	a.stage, a.value = holding, w.values[a.key]
	a.believe()
	w.note("%s has key%d until %s", a.note, a.key, a.until.Sub(w.begun))
	w.gotten[a.key] = w.gotten[a.key] || !w.stormy()
	for _, c := range w.clients {
		first := c.current
		if first == nil || first == a || first.key != a.key || first.stage != holding {
			continue
		}
		if first.believe(); time.Now().Before(first.until) {
			w.breaks("two owners: %s until %s, %s from now on", first.note, first.until.Sub(w.begun), a.note)
		}
		if first.works() {
			w.breaks("the context of %s has not ended when %s gets the lock", first.note, a.note)
		}
	}
}

// works reports whether the context of Keep has not ended. Somebody who is stopped
// does not work, nor one who has just woken up and is about to see what time it is.
func (a *attempt) works() bool {
	return a.held != nil && a.held.Err() == nil && time.Since(a.process.resumes) > time.Millisecond
}

// believe looks up how long the lease is valid in the eyes of its owner. One who is
// stopped while he looks at it himself believes what he did before.
func (a *attempt) believe() {
	if a.lease.mu.TryLock() {
		a.until, a.expires = a.process.trueTime(a.lease.until), a.lease.expires
		a.lease.mu.Unlock()
	}
}

func (a *attempt) kept(held context.Context) {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	a.held = held
	a.world.counts[keeps]++
	a.world.note("%s is kept", a.note)
}

// did counts what became of an extension or a release.
func (a *attempt) did(what string, yes, no int, err error) {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	a.world.note("%s is %s: %v", a.note, what, err)
	if err != nil {
		yes = no
	}
	a.world.counts[yes]++
}

// end is the end of what the client does with the lease; then it may be released.
func (a *attempt) end(how stage) {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	a.ends(how)
}

// effect is what the lock is for: one is added to what was found when it was granted,
// if the lease is still valid.
func (a *attempt) effect() {
	valid := a.lease.Validity() > 0
	w := a.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.stage != holding {
		return
	}
	if a.wrote = valid; valid {
		w.values[a.key] = a.value + 1
	}
	w.history = append(w.history, porcupine.Operation{
		ClientId: a.process.client.id, Input: a, Output: a.value,
		Call: int64(a.begun.Sub(w.begun)), Return: int64(time.Since(w.begun)),
	})
}

// checkHistory reports whether what was done under each lock could have been done by
// one client after the other.
func (w *world) checkHistory() bool {
	return porcupine.CheckOperations(porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := make([][]porcupine.Operation, w.law.keys)
			for _, op := range history {
				key := op.Input.(*attempt).key
				byKey[key] = append(byKey[key], op)
			}
			return byKey
		},
		Init: func() any { return 0 },
		Step: func(value, input, found any) (bool, any) {
			if input.(*attempt).wrote {
				return value == found, value.(int) + 1
			}
			return value == found, value
		},
	}, w.history)
}

// look looks after what is promised of leases at any moment.
func (w *world) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for i, c := range w.clients {
		a := c.current
		if a == nil || a.stage != holding {
			continue
		}
		if a.believe(); !now.Before(a.until) {
			if a.works() && now.After(a.until) {
				w.breaks("the context of %s outlives its lease", a.note)
			}
			continue
		}
		for _, other := range w.clients[:i] {
			if b := other.current; b != nil && b.stage == holding && b.key == a.key && now.Before(b.until) {
				w.breaks("two owners: %s until %s, %s until %s", b.note, b.until.Sub(w.begun), a.note, a.until.Sub(w.begun))
			}
		}
	}
}

// audit looks for keys that are left, again and again.
func (w *world) audit() {
	for w.inStorm(leftWithin / 4) {
		w.lookForKeys()
	}
}

func (w *world) lookForKeys() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		for key, e := range h.alive() {
			a := w.attempts[noteOf(e.token)]
			if e.expires-h.clock() > a.ttl+h.setBack {
				w.breaks("%s of %s on %s lasts longer than its TTL", key, a.note, h.name)
			}
			if since := a.leftSince(h, e); time.Since(since) > leftWithin {
				w.breaks("%s of %s is left on %s since %s", key, a.note, h.name, since.Sub(w.begun))
			}
		}
	}
}

// leftSince says since when nothing prevents the client from removing the key. A SET
// that is answered when its TTL has passed is released once; where that fails too, the
// key stays.
func (a *attempt) leftSince(h *host, e entry) (since time.Time) {
	now, c := time.Now(), a.process.client
	set := now.Add(-time.Duration(float64(h.clock()-e.expires+a.ttl) / h.rate))
	switch {
	case set.After(a.expires) && !a.lost[h.id]:
		return now
	case a.stage != finished, a.process.dead, !h.up:
		return now
	case h.started.After(a.ended): // it may have been removed, and restored from old data
		return now
	}
	since = a.ended
	for _, until := range []time.Time{h.wakes, a.process.resumes, a.process.ways[h.id].disturbed, c.cutOff[h.id]} {
		if until.After(since) {
			since = until
		}
	}
	return since
}
