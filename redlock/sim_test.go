package redlock

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
)

// A simulation is a world in fake time: some clients with a Locker each take a few
// locks from masters in memory, while network, processes and clocks fail. The Locker,
// its leases, its janitor and the judgement of a master's health are the shipped ones,
// the masters and connections those of the [explorer]. Where that goes through all
// orders of few events, a simulation draws long runs.
//
//	world    one run: a storm, then a calm in which a minority of masters is away
//	host     a master and its troubles: it hangs, is restarted, its clock is set
//	way      a client's connection to a master, with messages that are slow or lost
//	client   a program that takes locks and gives them back, is stopped, or killed
//	attempt  what a client asked for, what it believes of it, and what is promised
//
// All that happens is decided by [dice] thrown from the seed and the name of what is to
// be decided, a message by its client, master and number. Fake time moves on when
// everything waits, and no two things that meddle with each other are planned for one
// nanosecond. So a seed replays exactly: nothing depends on which goroutine is faster.
//
// Fake time is the same for all. A client that is stopped is therefore one whose
// messages do not leave, to whom nothing is delivered, and who waits when it looks at
// its second clock, as it does whenever it begins to rely on a lease or to extend it.
// A master has a clock of its own, which is up to 1 % fast or slow.
//
// The storm keeps to what the package comment assumes: see [host.mayForget].
type world struct {
	seed  uint64
	law   law
	bug   planted
	begun time.Time

	mu       sync.Mutex // for what is below, and all masters, connections and processes
	hosts    []*host
	clients  []*client
	attempts map[string]*attempt // by note
	values   []int               // by key: what the lock is for
	gotten   []bool              // by key: somebody got it in the calm
	history  []porcupine.Operation
	lawful   bool // the history is
	counts   tally
	broken   string // the first promise that was
	tracing  bool
	trace    []string
}

const (
	longestTTL = 2 * time.Second
	stormLasts = 20 * time.Second
	calmLasts  = 4 * longestTTL // the last key and the last quarantine take one each, and a bit
	mostSet    = 500 * time.Millisecond

	// leftWithin is how long a key that nobody wants may stay on a master that can be
	// reached.
	leftWithin = time.Second
)

// A planted bug is what differs from our code, to see that it is found.
type planted struct {
	quorum   int           // 0: the right one
	guard    time.Duration // < 0: restarted masters vote at once
	fromEnd  bool          // validity counts from the end of the attempt
	careless bool          // no release is repeated
}

// A law is what a seed has drawn for all of a run.
type law struct {
	masters, clients, keys    int
	timeout                   time.Duration
	think                     time.Duration // at most, before a client asks again
	slow, lost, late, unheard float64       // how likely a message is
	stop                      float64       // how likely a client is stopped over something
	trouble, partition        time.Duration // about how long it is until the next; 0: never
}

func drawLaw(seed uint64) law {
	d := throw(seed, forLaw)
	rarely := func(most float64) float64 {
		if d.chance(0.4) {
			return 0
		}
		return d.scale(most/100, most)
	}
	every := func(most time.Duration) time.Duration {
		if d.chance(0.3) {
			return 0
		}
		return d.lasting(most/5, most)
	}
	l := law{masters: 5, clients: 2 + d.below(3), keys: 1 + d.below(4)}
	if d.chance(0.25) {
		l.masters = 3
	}
	l.timeout, l.think = d.lasting(10*time.Millisecond, 200*time.Millisecond), d.lasting(5*time.Millisecond, 100*time.Millisecond)
	l.slow, l.lost, l.late, l.unheard, l.stop = rarely(0.5), rarely(0.02), rarely(0.02), rarely(0.02), rarely(0.01)
	l.trouble, l.partition = every(10*time.Second), every(10*time.Second)
	return l
}

// simulate makes one run.
func simulate(t *testing.T, seed uint64, bug planted, tracing bool) *world {
	w := newWorld(seed, drawLaw(seed), bug)
	w.tracing = tracing
	synctest.Test(t, func(*testing.T) { w.run() })
	if w.lawful = w.checkHistory(); !w.lawful {
		w.breaks("what was done under the locks was not done by one after the other")
	}
	return w
}

func newWorld(seed uint64, l law, bug planted) *world {
	return &world{
		seed: seed, law: l, bug: bug, attempts: map[string]*attempt{},
		values: make([]int, l.keys), gotten: make([]bool, l.keys),
	}
}

// people makes masters and clients.
func (w *world) people() {
	w.begun = time.Now()
	for i := range w.law.masters {
		w.hosts = append(w.hosts, newHost(w, i))
	}
	for i := range w.law.clients {
		w.clients = append(w.clients, &client{world: w, id: i, cutOff: make([]time.Time, w.law.masters)})
	}
}

func (w *world) run() {
	w.people()
	var nature, programs sync.WaitGroup
	for _, h := range w.hosts {
		nature.Go(h.suffer)
	}
	for _, c := range w.clients {
		nature.Go(c.beCutOff)
		programs.Go(c.live)
	}
	nature.Go(w.outages)
	nature.Go(w.audit)
	w.inStorm(stormLasts)
	nature.Wait()
	w.calm()
	programs.Wait()
	w.settle()
	for _, c := range w.clients {
		c.process.locker.Close()
	}
	w.counts[simulated] = int(time.Since(w.begun) / time.Second)
}

func (w *world) stormLeft() time.Duration { return stormLasts - time.Since(w.begun) }

// atMost is what is left of it for the trouble of one of many: no two end at once.
func (w *world) atMost(lasts time.Duration, one int) time.Duration {
	return min(lasts, w.stormLeft()-time.Duration(1+one)*time.Microsecond)
}

func (w *world) stormy() bool        { return w.stormLeft() > 0 }
func (w *world) calmEnds() time.Time { return w.begun.Add(stormLasts + calmLasts) }

// inStorm sleeps, and reports whether there is still a storm.
func (w *world) inStorm(lasts time.Duration) bool {
	time.Sleep(min(lasts, w.stormLeft()))
	return w.stormy()
}

// over reports whether the clients shall end.
func (w *world) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken != "" || !time.Now().Before(w.calmEnds())
}

// calm ends all troubles, but for a minority of masters that are away.
func (w *world) calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("calm")
	d := throw(w.seed, forMaster)
	for _, h := range w.hosts[:len(w.hosts)/2] {
		if h.wakes = w.calmEnds(); d.chance(0.5) {
			h.crash()
		}
	}
	for _, c := range w.clients {
		for _, at := range c.process.ways {
			if at.stuck || at.deaf {
				at.breakOff(false)
			}
		}
	}
}

// settle ends it all: every master is there, and nobody wants a lock any more.
func (w *world) settle() {
	w.mu.Lock()
	w.note("settle")
	for _, h := range w.hosts {
		if !h.up {
			h.start(h.alive())
		}
	}
	for key, got := range w.gotten {
		if !got && w.broken == "" {
			w.breaks("nobody got key%d for %s with a majority up", key, calmLasts)
		}
	}
	w.mu.Unlock()
	time.Sleep(leftWithin + time.Millisecond)
	w.lookForKeys()
	time.Sleep(longestTTL*102/100 + mostSet)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		for key, e := range h.alive() {
			w.breaks("%s of %s on %s outlives its TTL", key, noteOf(e.token), h.name)
		}
	}
}

// breaks notes that a promise is broken.
func (w *world) breaks(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
		w.note("%s %s", brokenMark, w.broken)
	}
}

const brokenMark = "BROKEN:"

// note adds to the trace.
func (w *world) note(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%12s ", time.Since(w.begun))+fmt.Sprintf(format, args...))
	}
}
