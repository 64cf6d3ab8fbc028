package redlock

import (
	"maps"
	"time"
)

// A host is a master with its troubles.
type host struct {
	*server
	world   *world
	id      int
	up      bool
	wakes   time.Time // until then it hangs
	started time.Time // its present life, in true time
	setBack time.Duration
	shaken  map[string]bool // tokens of which it forgot the key, or will too early
}

func newHost(w *world, i int) *host {
	d := throw(w.seed, forMaster, uint64(i))
	h := &host{server: newServer(i), world: w, id: i, up: true, shaken: map[string]bool{}}
	h.started = w.begun.Add(-time.Hour)
	if h.rate = 0.99 + 0.02*d.share(); d.chance(0.5) {
		h.rate = 0.99 + 0.02*float64(d.below(2))
	}
	return h
}

// suffer is what happens to the host in the storm.
func (h *host) suffer() {
	w := h.world
	for n := uint64(1); w.law.trouble > 0; n++ {
		d := throw(w.seed, forMaster, uint64(h.id), n)
		if !w.inStorm(d.lasting(w.law.trouble/10, 2*w.law.trouble)) {
			return
		}
		w.mu.Lock()
		if h.up {
			h.trouble(&d)
		}
		w.mu.Unlock()
	}
}

// outages are when several hosts are down at once.
func (w *world) outages() {
	for n := uint64(1); w.law.trouble > 0; n++ {
		d := throw(w.seed, forOutage, n)
		if !w.inStorm(d.lasting(w.law.trouble/4, 5*w.law.trouble)) {
			return
		}
		w.mu.Lock()
		share := d.share()
		for _, h := range w.hosts {
			if h.up && d.chance(share) {
				h.fail(&d, time.Second)
			}
		}
		w.mu.Unlock()
	}
}

// trouble is one thing that happens.
func (h *host) trouble(d *dice) {
	w := h.world
	switch d.below(8) {
	case 0:
		h.saved = maps.Clone(h.alive())
	case 1, 2:
		lasts := w.atMost(d.lasting(time.Millisecond, stormLasts), h.id)
		if wakes := time.Now().Add(lasts); wakes.After(h.wakes) {
			h.wakes = wakes
		}
		w.counts[hangs]++
		w.note("%s hangs for %s", h.name, lasts)
	case 3, 4, 5:
		h.fail(d, stormLasts/4)
	case 6:
		by := time.Duration(d.below(201)-100) * time.Microsecond // much less than the allowance for drift
		if d.chance(0.5) && h.setBack < mostSet {
			by = -d.lasting(time.Millisecond, mostSet-h.setBack+time.Millisecond)
		}
		h.setBack -= min(by, 0)
		h.setClock(by)
	case 7:
		h.forget(d)
	}
}

func (h *host) setClock(by time.Duration) {
	h.set += by
	h.world.counts[clocksSet]++
	h.world.note("%s sets its clock by %s", h.name, by)
}

// forget is what nobody notices: it is flushed, or its clock jumps ahead.
func (h *host) forget(d *dice) {
	w, all := h.world, h.alive()
	for _, e := range all {
		if !h.mayForget(e.token) {
			return
		}
	}
	for _, e := range all {
		h.shaken[e.token] = true
	}
	// The age that a server gives of itself is by the clock that is set.
	if grown := time.Since(h.started) > 2*longestTTL; grown && d.chance(0.5) {
		h.setClock(d.lasting(10*time.Millisecond, 10*longestTTL))
		return
	}
	clear(all)
	w.counts[flushes]++
	w.note("%s is flushed", h.name)
}

// mayForget reports whether the package promises to be right though the host forgets
// this key unnoticed: those that will not are a majority without it, and no vote on it
// is under way.
func (h *host) mayForget(token string) bool {
	w := h.world
	a := w.attempts[noteOf(token)]
	switch a.stage {
	case asking:
		return false
	case holding:
	default:
		return true
	}
	for _, at := range a.process.ways {
		if at.carries(token) {
			return false
		}
	}
	sure, until := 0, a.until.Sub(w.begun)
	for _, other := range w.hosts {
		e, has := other.alive()[keyName(a.key)]
		lasts := time.Since(w.begun) + time.Duration(float64(e.expires-other.clock())/other.rate)
		if other != h && has && e.token == token && lasts >= until && !other.shaken[token] {
			sure++
		}
	}
	return sure > len(w.hosts)/2
}

// crash ends this life. What was sent to it and has not arrived is lost.
func (h *host) crash() {
	h.world.note("%s is down", h.name)
	h.up = false
	for _, c := range h.world.clients {
		if c.process != nil {
			c.process.ways[h.id].reset()
		}
	}
}

// fail is a crash, after which the host begins a new life: with everything, with what
// was on disk, or with nothing.
func (h *host) fail(d *dice, most time.Duration) {
	how := d.below(3)
	h.world.counts[crashes]++
	h.crash()
	time.AfterFunc(h.world.atMost(d.lasting(10*time.Millisecond, most), h.id), func() {
		h.world.mu.Lock()
		defer h.world.mu.Unlock()
		keys, what := h.alive(), restarts
		switch how {
		case 0:
			keys, what = map[string]entry{}, emptyRestarts
		case 1:
			keys, what = h.saved, oldRestarts
		}
		h.world.counts[what]++
		h.start(keys)
	})
}

func (h *host) start(keys map[string]entry) {
	h.world.note("%s is up, with %d keys", h.name, len(keys))
	h.server.restart(keys)
	h.up, h.started, h.wakes = true, time.Now(), time.Time{}
}
