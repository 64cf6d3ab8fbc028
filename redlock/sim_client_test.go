package redlock

import (
	"context"
	"time"
)

// A client is a program that takes locks and gives them back, again and again. When
// its process was killed it starts another.
type client struct {
	world   *world
	id      int
	cutOff  []time.Time // by master: until when no message passes
	lives   uint64
	process *process
	current *attempt
}

// A process is one life of a client.
type process struct {
	client  *client
	life    uint64
	locker  *Locker
	ways    []*way
	begun   time.Time
	rate    float64 // of its second clock
	looked  uint64  // how often at that
	resumes time.Time
	asleep  time.Duration // so many wait for that
	dead    bool
}

func (c *client) name() string { return string(rune('A' + c.id)) }

// start starts a process.
func (c *client) start() {
	w := c.world
	w.mu.Lock()
	c.lives++
	d := throw(w.seed, forProcess, uint64(c.id), c.lives)
	p := &process{client: c, life: c.lives, begun: time.Now(), rate: 0.99 + 0.02*d.share()}
	guard, known := longestTTL, &census{lives: map[string]string{}}
	if w.bug.guard < 0 {
		guard = w.bug.guard
	}
	masters := make([]Master, len(w.hosts))
	for i, h := range w.hosts {
		p.ways = append(p.ways, newWay(p, h, guard, known))
		masters[i] = p.ways[i]
	}
	c.process = p
	w.mu.Unlock()
	l, err := over(Options{MaxTTL: longestTTL, MasterTimeout: w.law.timeout}, masters...)
	if err != nil {
		panic(err) // our options are sound
	}
	l.boot = p.boot
	if w.bug.quorum > 0 {
		l.quorum = min(w.bug.quorum, len(masters))
	}
	l.janitor.closed = w.bug.careless
	p.locker = l
}

// boot is the second clock. Whoever looks at it waits while the process is stopped,
// and perhaps it is stopped just then.
func (p *process) boot() time.Duration {
	w := p.client.world
	w.mu.Lock()
	p.looked++
	d := throw(w.seed, forBoot, uint64(p.client.id), p.life, p.looked)
	if w.stormy() && d.chance(w.law.stop) {
		p.stop(d.lasting(time.Millisecond, 3*longestTTL))
	}
	for left := p.stopped(); left > 0; left = p.stopped() {
		p.asleep++
		left += p.asleep // one after the other goes on
		w.mu.Unlock()
		time.Sleep(left)
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	return time.Duration(float64(time.Since(p.begun)) * p.rate)
}

// trueTime says when it ends, by whichever clock, what a client believes in until then.
func (p *process) trueTime(until moment) time.Time {
	if boot := p.begun.Add(time.Duration(float64(until.boot) / p.rate)); boot.Before(until.at) {
		return boot
	}
	return until.at
}

// stop stops the process for a while, but not longer than the storm.
func (p *process) stop(lasts time.Duration) {
	w := p.client.world
	until := time.Now().Add(w.atMost(lasts, p.client.id))
	if p.dead || !until.After(p.resumes) {
		return
	}
	p.resumes, p.asleep = until, 0
	w.counts[stops]++
	w.note("%s is stopped for %s", p.client.name(), lasts)
}

// stopped is for how long it still is.
func (p *process) stopped() time.Duration { return max(0, time.Until(p.resumes)) }

// pause is what the program sleeps, after the end of the stop if it is stopped.
func (p *process) pause(lasts time.Duration) {
	p.boot()
	time.Sleep(lasts)
	p.boot()
}

// kill ends the process. What it had sent may arrive.
func (p *process) kill(why count) {
	w := p.client.world
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return
	}
	w.counts[why]++
	w.note("%s is killed", p.client.name())
	p.dead = true
	for _, at := range p.ways {
		at.forsake(true)
	}
	p.client.current.ends(deserted)
	w.mu.Unlock()
	p.locker.stop()
	p.locker.janitor.close()
}

func (p *process) isDead() bool {
	p.client.world.mu.Lock()
	defer p.client.world.mu.Unlock()
	return p.dead
}

// beCutOff is what the network does to the client in the storm.
func (c *client) beCutOff() {
	w := c.world
	for n := uint64(1); w.law.partition > 0; n++ {
		d := throw(w.seed, forPartition, uint64(c.id), n)
		if !w.inStorm(d.lasting(w.law.partition/10, 2*w.law.partition)) {
			return
		}
		w.mu.Lock()
		lasts := w.atMost(d.lasting(time.Millisecond, stormLasts/2), c.id)
		share, rejected := d.share(), d.chance(0.3)
		for i := range w.hosts {
			if !d.chance(share) {
				continue
			}
			c.loses(i, lasts)
			if rejected && c.process != nil {
				c.process.ways[i].breakOff(false)
			}
		}
		w.counts[partitions]++
		w.mu.Unlock()
	}
}

// loses cuts the client off from a master for a while.
func (c *client) loses(master int, lasts time.Duration) {
	if until := time.Now().Add(lasts); until.After(c.cutOff[master]) {
		c.cutOff[master] = until
		c.world.note("%s is cut off from master%d for %s", c.name(), master+1, lasts)
	}
}

// live is the program.
func (c *client) live() {
	w := c.world
	time.Sleep(time.Duration(1+c.id) * time.Microsecond)
	c.start()
	pause := w.law.think
	for n := uint64(1); !w.over(); n++ {
		d := throw(w.seed, forClient, uint64(c.id), n)
		c.process.pause(d.lasting(time.Millisecond, pause))
		if pause = min(4*pause, 4*lastPause); c.visit(&d, n) {
			pause = w.law.think
		}
		if c.process.isDead() {
			c.start()
		}
	}
}

// visit is one attempt, and what the program does with the lease if it gets one.
func (c *client) visit(d *dice, n uint64) (got bool) {
	p, storm := c.process, c.world.stormy()
	ttl := longestTTL
	if d.chance(0.8) {
		ttl = d.lasting(50*time.Millisecond, longestTTL)
	}
	a := c.world.asks(c, d.below(c.world.law.keys), ttl, n)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if storm && d.chance(0.1) {
		how, lasts := d.share(), d.lasting(10*time.Microsecond, time.Second)
		interrupted := time.AfterFunc(lasts, func() {
			if how < 0.1 {
				p.kill(kills)
			} else {
				p.pause(time.Microsecond) // and when all others have gone on, if it is stopped
			}
			cancel()
		})
		defer interrupted.Stop()
	}
	lease, err := p.locker.Acquire(ctx, keyName(a.key), a.ttl, a.note)
	if err != nil {
		a.refused(err)
		return false
	}
	if c.world.bug.fromEnd {
		lease.until = p.locker.now().add(a.ttl - p.locker.drift(a.ttl))
	}
	a.granted(lease)
	c.use(ctx, a, d, storm)
	return true
}

// use does something under the lease, and mostly gives it back.
func (c *client) use(ctx context.Context, a *attempt, d *dice, storm bool) {
	p, manner := c.process, d.below(200)
	switch work := d.lasting(100*time.Microsecond, a.ttl/10); {
	case manner < 100 || !storm:
		p.pause(work)
	case manner < 140:
		c.keep(ctx, a, d)
	case manner < 170:
		for range 1 + d.below(4) {
			if p.pause(d.lasting(time.Millisecond, a.ttl)); ctx.Err() == nil {
				a.did("extended", extensions, failedExtensions, a.lease.Extend(ctx))
			}
		}
	default:
		p.pause(d.lasting(a.ttl/10, 2*a.ttl)) // and it may lapse
	}
	a.effect()
	switch {
	case manner >= 194:
		p.kill(kills)
	case manner >= 190: // it forgets its lease
		a.end(deserted)
	default:
		a.end(finished)
		a.did("released", releases, failedReleases, a.lease.Release())
	}
	if manner >= 170 && manner < 174 {
		p.locker.Close()
		p.kill(ends)
	}
}

// keep holds the lease for longer than it was granted.
func (c *client) keep(ctx context.Context, a *attempt, d *dice) {
	limits := Limits{}
	switch d.below(4) {
	case 0:
		limits.Extensions = 1 + d.below(5)
	case 1:
		limits.Hold = d.lasting(time.Millisecond, longestTTL)
	}
	held, stop := a.lease.Keep(ctx, limits)
	a.kept(held)
	select {
	case <-held.Done():
	case <-time.After(d.lasting(time.Millisecond, 2*longestTTL)):
	}
	c.process.pause(1)
	stop()
}
