package postgres

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A group lets calls that come together travel together: one statement carries
// them, and each has its own answer and its own error. A call that comes alone
// leaves at once; those that come meanwhile take the next trip. There is one trip
// at a time, as a full one costs little more than an empty one, but nobody waits
// for a trip that is late: then there is another.
//
// A statement that the server refuses did nothing. Its calls are sent again one by
// one, so that only those fail that are at fault; and where a row was locked by
// somebody for too long, only those wait on that want it.
type group[C, A any] struct {
	// send carries calls to the server and returns their answers in the same order.
	// Only a patient call, which is alone, may wait long for a row that is locked.
	send    func(ctx context.Context, calls []C, patient bool) ([]A, error)
	refused func(error) bool
	// key names what a call is about: no two calls about the same travel together.
	key func(C) any

	mu      sync.Mutex
	waiting []*passenger[C, A]
	trips   int           // under way
	late    int           // of these
	stuck   map[any]int   // patient calls, by what they are about
	alone   chan struct{} // holds one for each call that is sent alone
	patient chan struct{} // and one for each that waits for a locked row
}

const (
	lateAfter  = 20 * time.Millisecond
	maxCalls   = 256
	maxTrips   = 3 // at one time, as below: the pool is there for others too
	maxAlone   = 2
	maxPatient = 2
)

// A passenger is a call with whoever waits for its answer.
type passenger[C, A any] struct {
	call   C
	answer A
	err    error
	done   chan struct{} // closed when there is an answer, or an error
	trip   *trip         // nil while it waits for one
	left   bool          // nobody waits for the answer any more
}

// A trip ends early when nobody aboard waits any more.
type trip struct {
	cancel context.CancelFunc
	aboard int
}

func newGroup[C, A any](send func(context.Context, []C, bool) ([]A, error), refused func(error) bool, key func(C) any) *group[C, A] {
	return &group[C, A]{send: send, refused: refused, key: key,
		stuck: map[any]int{}, alone: make(chan struct{}, maxAlone), patient: make(chan struct{}, maxPatient)}
}

// do returns the answer to a call, or the error of ctx as soon as that ends: then
// the call may yet be answered, to nobody.
func (g *group[C, A]) do(ctx context.Context, call C) (none A, err error) {
	if err := ctx.Err(); err != nil {
		return none, err
	}
	p := &passenger[C, A]{call: call, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, p)
	g.begin()
	g.mu.Unlock()
	select {
	case <-p.done:
		return p.answer, p.err
	case <-ctx.Done():
		g.leave(p)
		return none, ctx.Err()
	}
}

func (g *group[C, A]) leave(p *passenger[C, A]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.left = true
	if p.trip == nil {
		g.waiting = slices.DeleteFunc(g.waiting, func(w *passenger[C, A]) bool { return w == p })
		return
	}
	if p.trip.aboard--; p.trip.aboard == 0 {
		p.trip.cancel()
	}
}

// begin makes a trip for those who wait, unless one is under way that is not late.
// The caller has locked.
func (g *group[C, A]) begin() {
	if len(g.waiting) > 0 && g.trips == g.late && g.trips < maxTrips {
		g.trips++
		go g.travel()
	}
}

// travel makes trips until nobody waits.
func (g *group[C, A]) travel() {
	for aboard := g.board(); len(aboard) > 0; aboard = g.board() {
		ctx, end := g.depart(aboard...)
		inTime := g.watch()
		answers, err := g.send(ctx, callsOf(aboard), false)
		inTime()
		end()
		if err != nil && g.refused(err) {
			for _, p := range aboard {
				go g.single(p)
			}
			continue
		}
		arrive(aboard, answers, err)
	}
}

// watch counts the trip as late from some time on, until inTime is called.
func (g *group[C, A]) watch() (inTime func()) {
	late := time.AfterFunc(lateAfter, func() { g.count(+1) })
	return func() {
		if !late.Stop() {
			g.count(-1)
		}
	}
}

func (g *group[C, A]) count(late int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late += late
	g.begin()
}

// single sends a call alone, and once more where it waits for a locked row.
func (g *group[C, A]) single(p *passenger[C, A]) {
	answers, err := g.carry(p, g.alone, false)
	if err != nil && g.refused(err) {
		g.wait(p)
		return
	}
	arrive([]*passenger[C, A]{p}, answers, err)
}

// wait sends a call that may wait for a locked row, and keeps others that are
// about the same from making a trip late.
func (g *group[C, A]) wait(p *passenger[C, A]) {
	key := g.key(p.call)
	g.mu.Lock()
	g.stuck[key]++
	g.mu.Unlock()
	answers, err := g.carry(p, g.patient, true)
	g.mu.Lock()
	if g.stuck[key]--; g.stuck[key] == 0 {
		delete(g.stuck, key)
	}
	g.mu.Unlock()
	arrive([]*passenger[C, A]{p}, answers, err)
}

// carry sends a single call when there is room for it.
func (g *group[C, A]) carry(p *passenger[C, A], room chan struct{}, patient bool) ([]A, error) {
	ctx, end := g.depart(p)
	defer end()
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
		return g.send(ctx, []C{p.call}, patient)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// board takes those who wait, with calls that are about different things. If there
// are none, the trip is over.
func (g *group[C, A]) board() (aboard []*passenger[C, A]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := make(map[any]bool, len(g.waiting))
	g.waiting = slices.DeleteFunc(g.waiting, func(p *passenger[C, A]) bool {
		key := g.key(p.call)
		switch {
		case g.stuck[key] > 0:
			go g.wait(p)
		case len(aboard) == maxCalls || seen[key]:
			return false
		default:
			seen[key] = true
			aboard = append(aboard, p)
		}
		return true
	})
	if len(aboard) == 0 {
		g.trips--
	}
	return aboard
}

// depart gives passengers a context that ends when all have left.
func (g *group[C, A]) depart(aboard ...*passenger[C, A]) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	t := &trip{cancel: cancel}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range aboard {
		p.trip = t
		if !p.left {
			t.aboard++
		}
	}
	if t.aboard == 0 {
		cancel()
	}
	return ctx, cancel
}

func callsOf[C, A any](aboard []*passenger[C, A]) []C {
	calls := make([]C, len(aboard))
	for i, p := range aboard {
		calls[i] = p.call
	}
	return calls
}

func arrive[C, A any](aboard []*passenger[C, A], answers []A, err error) {
	for i, p := range aboard {
		if p.err = err; err == nil {
			p.answer = answers[i]
		}
		close(p.done)
	}
}
