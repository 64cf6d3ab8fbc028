package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing/synctest"
	"time"
)

// Two clients against three masters, in every order of events that there is, with at
// most one fault. It is the shipped Locker that runs; what is decided from outside
// is which event is next. See [explorer] for who decides.

const (
	exploredTTL     = 10 * time.Second
	exploredTimeout = 60 * time.Millisecond
)

// A step is one event: what happens, to which client, on which master.
type step struct {
	what           event
	client, master int
}

type event byte

const (
	begin   event = iota // a client asks for the lock
	arrive               // the next question arrives at a master
	answer               // the next answer arrives at a client
	release              // a client gives its lease back
	late                 // what was sent before a connection broke arrives
	settle               // the end: the janitors get some time, and no key is left

	// Faults, of which there is one in a run.
	cutAnswer   // a connection breaks: what was answered was done, and is not heard
	cutQuestion // a connection breaks: what was sent is lost
	cutLate     // a connection breaks: what was sent arrives, but late
	wipe        // a master is restarted and has forgotten everything
	reboot      // a master is restarted and has forgotten nothing
	tick        // a master timeout passes
	expire      // time passes until every lease and key has ended
)

var allFaults = []event{cutAnswer, cutQuestion, cutLate, wipe, reboot, tick, expire}

func (e event) String() string {
	return [...]string{"begin", "arrive", "answer", "release", "arrive late", "settle", "lose the answer", "lose the question",
		"delay the question", "restart empty", "restart", "master timeout", "expire"}[e]
}

func (s step) String() string {
	switch s.what {
	case tick, expire, settle:
		return s.what.String()
	case begin, release:
		return fmt.Sprintf("%s %c", s.what, 'A'+s.client)
	case wipe, reboot:
		return fmt.Sprintf("%s %d", s.what, s.master+1)
	}
	return fmt.Sprintf("%s %c%d", s.what, 'A'+s.client, s.master+1)
}

// A scene is what is explored, and how the code in it differs from ours: bugs are
// planted there.
type scene struct {
	fault     event         // the one kind of fault that there may be; begin for none
	quorum    int           // 0: the right one
	guard     time.Duration // < 0: none
	overtaken int           // after how many rounds of the janitor's a late question arrives
}

// An explored world is one run.
type explored struct {
	scene   scene
	servers [3]*server
	clients [2]*visitor
	fault   bool       // there was the one, or there may be none
	baton   sync.Mutex // goes to whoever is awake, and tells the race detector so
	broken  string     // the promise that was
}

// A visitor is a client: it takes the lock once and gives it back.
type visitor struct {
	locker *Locker
	ways   [3]*stepped
	cancel context.CancelFunc
	busy   sync.WaitGroup

	begun    bool
	returned bool // Acquire has, with what follows
	lease    *Lease
	err      error
	freed    bool // it is released
}

func newExplored(sc scene) *explored {
	w := &explored{scene: sc, fault: sc.fault == begin}
	for i := range w.servers {
		w.servers[i] = newServer(i)
	}
	if sc.guard == 0 {
		sc.guard = exploredTTL
	}
	for i := range w.clients {
		c := &visitor{}
		known := &census{lives: map[string]string{}}
		masters := make([]Master, len(c.ways))
		for m := range c.ways {
			c.ways[m] = newStepped(w.servers[m], sc.guard, known, &w.baton)
			masters[m] = c.ways[m]
		}
		c.locker = unwatched(Options{MaxTTL: exploredTTL, MasterTimeout: exploredTimeout}, masters, sc.quorum)
		w.clients[i] = c
	}
	return w
}

// unwatched is a Locker that does not look after its masters by itself, with a
// clock that a bubble can have, and perhaps with a wrong quorum.
func unwatched(opts Options, masters []Master, quorum int) *Locker {
	l, err := over(opts, masters...)
	if err != nil {
		panic(err)
	}
	l.stop()
	l.ended.Wait()
	begun := time.Now()
	l.boot = func() time.Duration { return time.Since(begun) }
	if quorum > 0 {
		l.quorum = quorum
	}
	return l
}

// close ends the run, whatever it waits for.
func (w *explored) close() {
	w.handOn()
	for _, c := range w.clients {
		if c.begun {
			c.cancel()
			c.busy.Wait()
		}
		c.locker.Close()
	}
}

// do makes one step.
func (w *explored) do(s step) {
	w.fault = w.fault || s.what >= cutAnswer
	w.handOn()
	c, at := w.clients[s.client], w.clients[s.client].ways[s.master]
	switch s.what {
	case begin:
		w.begin(c)
	case arrive:
		at.arrive()
		return // nobody learns of it
	case answer:
		at.answer()
	case release:
		c.freed = true
		c.busy.Go(func() { _ = c.lease.Release() })
	case settle:
		w.settle()
	case tick:
		time.Sleep(exploredTimeout)
	case expire:
		time.Sleep(exploredTTL)
	case late:
		at.straggle()
		return
	case wipe, reboot:
		w.restart(s.master, s.what == wipe)
	case cutAnswer, cutQuestion:
		at.cut()
	case cutLate:
		at.stray, at.patient = at.sent, 1+2*w.scene.overtaken
		at.cut()
	}
	synctest.Wait() // for whoever got what it waited for
}

// handOn goes before whatever may wake others up, or wait for them.
func (w *explored) handOn() {
	w.baton.Lock()
	defer w.baton.Unlock()
}

func (w *explored) begin(c *visitor) {
	ctx, cancel := context.WithCancel(context.Background())
	c.begun, c.cancel = true, cancel
	c.busy.Go(func() {
		lease, err := c.locker.Acquire(ctx, "k", exploredTTL, "")
		w.baton.Lock()
		defer w.baton.Unlock()
		c.returned, c.lease, c.err = true, lease, err
		for _, other := range w.clients {
			if other != c && lease != nil && other.lease != nil && !other.freed && other.lease.Validity() > 0 {
				w.broken = "two owners"
			}
		}
	})
}

func (w *explored) restart(m int, empty bool) {
	s := w.servers[m]
	keys := s.alive()
	if empty {
		keys = map[string]entry{}
	}
	s.restart(keys)
	for _, c := range w.clients {
		c.ways[m].reset()
	}
}

// steps are those that can be next. Some are left out: those that change nothing
// that another order of the same steps does not show.
func (w *explored) steps() (next []step) {
	if s, ok := w.idle(); ok {
		return []step{s}
	}
	over := w.over()
	for m := range w.servers {
		for i, c := range w.clients {
			next = append(next, w.between(i, m, c.ways[m])...)
		}
		if !w.fault && (w.scene.fault == wipe || w.scene.fault == reboot) {
			next = append(next, step{what: w.scene.fault, master: m})
		}
		if over && len(next) > 0 && !w.rests(m) {
			return next // with nobody to see all the masters, each is for itself
		}
	}
	if over {
		return []step{{what: settle}}
	}
	for i, c := range w.clients {
		if !c.begun {
			next = append(next, step{what: begin, client: i})
		}
		if c.lease != nil && !c.freed {
			next = append(next, step{what: release, client: i})
		}
	}
	if !w.fault && (w.scene.fault == tick || w.scene.fault == expire) {
		next = append(next, step{what: w.scene.fault})
	}
	return next
}

// between are the steps of a client and a master.
func (w *explored) between(client, master int, at *stepped) (next []step) {
	if len(at.sent) > 0 {
		next = append(next, step{arrive, client, master})
	}
	if len(at.answers) > 0 {
		next = append(next, step{answer, client, master})
	}
	if len(at.stray) > 0 && w.scene.overtaken == 0 {
		next = append(next, step{late, client, master})
	}
	var can bool
	switch w.scene.fault {
	case cutAnswer:
		can = len(at.answers) > 0
	case cutQuestion, cutLate:
		can = len(at.sent) > 0
	}
	if can && !w.fault {
		next = append(next, step{w.scene.fault, client, master})
	}
	return next
}

// idle is an answer that confirms a release where no fault can come any more.
// Whoever hears it does nothing: it may as well be heard now.
func (w *explored) idle() (s step, ok bool) {
	for i, c := range w.clients {
		for m, at := range c.ways {
			if !w.fault || len(at.answers) == 0 {
				continue
			}
			a := at.answers[0]
			one, isChore := a.hearer.(*chore)
			if a.Op == Release && a.Err == nil && (!isChore || one.times <= 1) {
				return step{answer, i, m}, true
			}
		}
	}
	return s, false
}

// over reports whether both clients are done, and only their keys are left.
func (w *explored) over() bool { return w.clients[0].done() && w.clients[1].done() }

// rests reports whether nothing is under way to this master.
func (w *explored) rests(m int) bool {
	return w.clients[0].ways[m].empty() && w.clients[1].ways[m].empty()
}

// settle gives the janitors some time, much less than a key lives, and looks
// whether a key of ours is left.
func (w *explored) settle() {
	for round := range 5 {
		w.handOn()
		time.Sleep(exploredTimeout / 2)
		synctest.Wait()
		for _, c := range w.clients {
			for _, at := range c.ways {
				if round >= w.scene.overtaken {
					at.straggle()
				}
				for ; len(at.sent)+len(at.answers) > 0; at.answer() {
					if len(at.answers) == 0 {
						at.arrive()
					}
				}
			}
		}
	}
	for _, s := range w.servers {
		if len(s.alive()) > 0 {
			w.broken = "a key is left"
		}
	}
	for _, c := range w.clients {
		if len(c.locker.janitor.chores) > 0 {
			w.broken = "a chore is left"
		}
		if c.lease == nil && !errors.Is(c.err, ErrTaken) && !errors.Is(c.err, ErrNoQuorum) {
			w.broken = fmt.Sprintf("neither a lease nor a reason: %v", c.err)
		}
	}
}
