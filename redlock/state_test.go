package redlock

import (
	"bytes"
	"slices"
	"time"
)

// state is all that the future depends on: two runs that have come to one state go
// on alike. Masters are in no order, nor are clients: they are alike.
func (w *explored) state() string {
	a, b := w.seen(0, 1), w.seen(1, 0)
	return string(slices.MinFunc([][]byte{a, b}, bytes.Compare))
}

// bits packs what is true or not.
func bits(all ...bool) (b byte) {
	for _, one := range all {
		b <<= 1
		if one {
			b |= 1
		}
	}
	return b
}

// seen is the state with the clients in this order.
func (w *explored) seen(first, second int) []byte {
	var columns [len(w.servers)][]byte
	for m := range columns {
		columns[m] = w.column(m, first, second)
	}
	slices.SortFunc(columns[:], bytes.Compare)
	all := []byte{bits(w.fault)}
	for _, i := range []int{first, second} {
		c := w.clients[i]
		all = append(all, bits(c.begun, c.done(), c.lease != nil && !c.freed, c.lease != nil && c.lease.Validity() > 0, c.chased()))
	}
	for _, column := range columns {
		all = append(append(all, 0xff), column...)
	}
	return all
}

// column is what there is on one master, and on the ways to it.
func (w *explored) column(m, first, second int) (all []byte) {
	holder := w.servers[m].alive()["k"].token
	if w.over() && w.clients[0].rests(m) && w.clients[1].rests(m) {
		return []byte{bits(holder != "")}
	}
	for _, i := range []int{first, second} {
		c := w.clients[i]
		at := c.ways[m]
		all = append(all, bits(holder != "" && holder == c.token()))
		if !c.begun || at.taking() { // else it does not matter whether it may vote
			all = append(all, 't', bits(at.met, at.health.bar() != nil, at.life == at.at.life))
		}
		if c.begun && !c.done() { // else what it answered does not matter
			s := c.vote().seats[m]
			all = append(all, 'v', bits(s.answered, s.OK, s.Err != nil, s.Sent))
		}
		all = at.queues(all)
		all = append(all, c.chores(at)...)
	}
	return all
}

// queues is what is under way.
func (m *stepped) queues(all []byte) []byte {
	for _, a := range m.sent {
		all = append(all, 's', nameOf(a))
	}
	for _, a := range m.stray {
		all = append(all, 'l', nameOf(a), byte(m.patient))
	}
	for _, a := range m.answers {
		all = append(all, 'a', nameOf(a.asked), bits(a.OK, a.Err != nil, a.Sent))
	}
	for _, a := range m.waiting {
		all = append(all, 'w', nameOf(a))
	}
	return all
}

// nameOf says what a question is and who waits for the answer.
func nameOf(a asked) byte {
	if c, ok := a.hearer.(*chore); ok {
		c.janitor.mu.Lock()
		defer c.janitor.mu.Unlock()
		return c.name()
	}
	return byte(a.Op)
}

func (c *chore) name() byte {
	later := slices.Contains(c.janitor.later[c.master], c)
	return 16*byte(c.times) + bits(true, c.until.IsZero(), time.Now().Before(c.until), later)
}

// taking reports whether the question for the key is under way.
func (m *stepped) taking() bool {
	isTake := func(a asked) bool { return a.Op == Take }
	return slices.ContainsFunc(m.sent, isTake) || slices.ContainsFunc(m.waiting, isTake) ||
		slices.ContainsFunc(m.stray, isTake) || slices.ContainsFunc(m.answers, func(g given) bool { return g.Op == Take })
}

func (c *visitor) vote() *ballot { return c.ways[0].vote }

func (c *visitor) token() string {
	if c.vote() == nil {
		return "nobody's"
	}
	return c.vote().question.Token
}

// chased reports whether the client has releases asked behind its SETs.
func (c *visitor) chased() bool {
	b := c.vote()
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.chased
}

// done reports whether the client has nothing more to say.
func (c *visitor) done() bool { return c.returned && (c.lease == nil || c.freed) }

// chores are those of this client on this master.
func (c *visitor) chores(at *stepped) (all []byte) {
	j := c.locker.janitor
	j.mu.Lock()
	defer j.mu.Unlock()
	for one := range j.chores {
		if one.master == at {
			all = append(all, 'c', one.name())
		}
	}
	slices.Sort(all)
	return all
}

// rests reports whether nothing is under way to this master or will be.
func (c *visitor) rests(m int) bool {
	return c.ways[m].empty() && len(c.chores(c.ways[m])) == 0
}

func (m *stepped) empty() bool {
	return len(m.sent)+len(m.answers)+len(m.waiting)+len(m.stray) == 0
}
