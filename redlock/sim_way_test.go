package redlock

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A way is a connection whose events come by time: see [stepped] for what they do. One
// question and one answer are on the move at most, the others behind them.
type way struct {
	stepped
	world   *world
	host    *host
	process *process

	number, heard uint64 // of questions that set off, of answers
	conn          int    // what was planned for a connection that broke does not happen
	moving        bool   // a question is
	coming        bool   // an answer is
	trails, tails bool   // it does so right behind another question, or answer
	stuck, deaf   bool   // no question moves until the connection breaks, no answer
	redial        time.Time
	disturbed     time.Time // the last moment at which it was not in order
}

var errRefused = errors.New("connection refused")

func newWay(p *process, h *host, guard time.Duration, known *census) *way {
	w := &way{world: h.world, host: h, process: p}
	w.stepped = stepped{at: h.server, baton: &h.world.mu, health: newHealth(h.name, guard, known)}
	return w
}

func (w *way) Ask(q Question, hearer Hearer, seat int) {
	w.world.mu.Lock()
	dead, refused := w.process.dead, !w.met && time.Now().Before(w.redial) && q.Op != Ping
	w.world.mu.Unlock()
	switch {
	case dead: // nobody is there to ask
	case refused:
		hearer.Hear(seat, Answer{Err: errRefused})
	default:
		w.stepped.Ask(q, hearer, seat)
		w.world.mu.Lock()
		defer w.world.mu.Unlock()
		w.flow()
	}
}

// flow keeps things on the move.
func (w *way) flow() {
	if w.process.dead {
		return
	}
	if len(w.sent) > 0 && !w.moving && !w.stuck {
		w.setOff()
	}
	if len(w.answers) > 0 && !w.coming && !w.deaf {
		w.comeBack()
	}
}

// after has something happen later: in one of the nanoseconds that each way has for
// each kind of things.
func (w *way) after(lasts time.Duration, kind uint64, what func()) {
	const every = 1 << 9
	own := uint64(w.process.client.id*len(w.world.hosts)+w.host.id)<<4 | kind
	at := time.Since(w.world.begun) + lasts
	time.AfterFunc(lasts+every-(at-time.Duration(own))%every, what)
}

// plan has something happen unless the connection breaks before.
func (w *way) plan(lasts time.Duration, kind uint64, what func()) {
	conn := w.conn
	w.after(lasts, kind, func() {
		w.world.mu.Lock()
		defer w.world.mu.Unlock()
		if conn == w.conn && !w.process.dead {
			what()
		}
	})
}

// delay is how long a message takes, or comes after the one before it.
func (w *way) delay(d *dice, behind bool) time.Duration {
	if behind {
		return d.lasting(time.Microsecond, 20*time.Microsecond)
	}
	if w.world.stormy() && d.chance(w.world.law.slow) {
		return d.lasting(2*time.Millisecond, 200*time.Millisecond)
	}
	return d.lasting(50*time.Microsecond, 2*time.Millisecond)
}

// throw throws the dice for a message.
func (w *way) throw(what, number uint64) dice {
	p := w.process
	return throw(w.world.seed, what, uint64(p.client.id), p.life, uint64(w.host.id), number)
}

// blocked is until when nothing passes.
func (w *way) blocked() time.Time {
	if cut := w.process.client.cutOff[w.host.id]; cut.After(w.host.wakes) {
		return cut
	}
	return w.host.wakes
}

// setOff sends the oldest question on its way, and decides what becomes of it.
func (w *way) setOff() {
	w.number++
	d := w.throw(forQuestion, w.number)
	if !w.met && (!w.host.up || time.Now().Before(w.blocked())) {
		w.refuse(&d)
		return
	}
	takes := w.delay(&d, w.trails)
	w.moving, w.trails = true, true
	if w.world.stormy() && w.suffers(&d) {
		return
	}
	if !w.met {
		takes *= 3 // for the handshakes
	}
	w.plan(w.process.stopped()+takes, forQuestion, w.arrives)
}

// suffers decides what goes wrong with a question, and reports whether it does not
// arrive.
func (w *way) suffers(d *dice) bool {
	law, counts := w.world.law, &w.world.counts
	breaks := d.lasting(100*time.Microsecond, patience)
	what := d.share()
	switch {
	case what > 1-law.stop:
		w.process.stop(d.lasting(time.Millisecond, 3*longestTTL))
		return false
	case what < law.lost:
		counts[losses]++
		w.stuck = true
	case what < law.lost+law.late:
		counts[delays]++
		w.stuck = true
	case what < law.lost+law.late+law.unheard:
		counts[unheard]++
		w.deaf = true
	default:
		return false
	}
	late := w.stuck && what >= law.lost
	w.disturb(breaks)
	w.world.note("%s: stuck %t, late %t, deaf %t, for %s", w.name(), w.stuck, late, w.deaf, breaks)
	w.plan(breaks, forBreak, func() { w.breakOff(late) })
	return w.stuck
}

// refuse answers all questions as somebody does who cannot connect.
func (w *way) refuse(d *dice) {
	takes := w.delay(d, false)
	if w.host.up && d.chance(0.5) { // and nobody says that it cannot be reached
		takes = connectWithin
	}
	w.disturb(takes + redialAfter)
	w.moving = true
	w.plan(takes, forQuestion, func() {
		w.moving = false
		w.redial = time.Now().Add(redialAfter)
		for _, a := range w.sent {
			w.answers = append(w.answers, given{a, Answer{Err: errRefused}})
		}
		w.sent = nil
		w.flow()
	})
}

// arrives gives the oldest question to the server.
func (w *way) arrives() {
	if left := time.Until(w.blocked()); left > patience {
		w.plan(patience, forBreak, func() { w.breakOff(true) })
		w.disturb(left)
		return
	} else if left > 0 {
		d := w.throw(forQuestion, w.number)
		w.plan(left+w.delay(&d, false), forQuestion, w.arrives)
		w.disturb(left)
		return
	}
	w.moving = false
	w.stepped.arrive()
	w.noteAnswer("", w.answers[len(w.answers)-1])
	w.flow()
}

// comeBack sends the oldest answer on its way.
func (w *way) comeBack() {
	w.heard++
	d := w.throw(forAnswer, w.heard)
	takes := w.delay(&d, w.tails)
	w.coming, w.tails = true, true
	if w.answers[0].Err != nil {
		takes = d.lasting(1, time.Microsecond) // it is made where it is heard
	}
	w.hearLater(takes)
}

func (w *way) hearLater(lasts time.Duration) {
	conn := w.conn
	w.after(lasts, forAnswer, func() {
		w.world.mu.Lock()
		left := max(time.Until(w.blocked()), w.process.stopped())
		switch {
		case conn != w.conn || w.process.dead:
			w.world.mu.Unlock()
		case left > 0 && (w.answers[0].Err == nil || w.process.stopped() > 0):
			d := w.throw(forAnswer, w.heard)
			w.hearLater(left + w.delay(&d, false))
			w.world.mu.Unlock()
		default:
			w.noteAnswer("heard ", w.answers[0])
			if len(w.answers)+len(w.sent) == 1 { // the last of what was sent together
				w.trails, w.tails = false, false
			}
			w.world.mu.Unlock()
			w.stepped.answer()
			w.world.mu.Lock()
			w.coming = false
			w.flow()
			w.world.mu.Unlock()
			w.world.look()
		}
	})
}

// breakOff breaks the connection at the client. What has not arrived is lost, or comes
// late.
func (w *way) breakOff(late bool) {
	w.world.note("%s breaks off, late %t", w.name(), late)
	w.forsake(late)
	w.stepped.cut()
	w.flow()
}

// forsake has nothing come of what was planned, but for questions that come late.
func (w *way) forsake(late bool) {
	w.conn++
	w.moving, w.coming, w.trails, w.tails, w.stuck, w.deaf = false, false, false, false, false, false
	w.disturb(0)
	if !late || len(w.sent) == 0 {
		return
	}
	w.straggle()
	for _, q := range w.sent {
		if a := w.world.attempts[noteOf(q.Token)]; a != nil && q.Op == Take {
			a.lost[w.host.id] = true
		}
	}
	w.stray, w.patient = w.sent, 1
	d := w.throw(forQuestion, w.number)
	w.straggleLater(d.lasting(time.Millisecond, time.Second), w.host.life)
}

func (w *way) straggleLater(lasts time.Duration, life int) {
	w.after(lasts, forStray, func() {
		w.world.mu.Lock()
		defer w.world.mu.Unlock()
		switch left := time.Until(w.blocked()); {
		case life != w.host.life || !w.host.up:
		case left > 0:
			w.straggleLater(left+lasts%time.Millisecond, life)
		default:
			w.world.note("%s: %d late questions arrive", w.name(), len(w.stray))
			w.disturb(0)
			w.straggle()
		}
	})
}

// reset breaks the connection at the server, which is down.
func (w *way) reset() {
	deaf := w.deaf
	w.forsake(false)
	w.stray = nil
	if deaf {
		w.stepped.cut()
	}
	w.stepped.reset()
	w.flow()
}

func (w *way) disturb(lasts time.Duration) {
	if until := time.Now().Add(lasts); until.After(w.disturbed) {
		w.disturbed = until
	}
}

// carries reports whether something about this token is under way.
func (w *way) carries(token string) bool {
	such := func(a asked) bool { return a.Token == token }
	return slices.ContainsFunc(w.sent, such) || slices.ContainsFunc(w.waiting, such) || slices.ContainsFunc(w.stray, such) ||
		slices.ContainsFunc(w.answers, func(g given) bool { return g.Token == token })
}

func (w *way) noteAnswer(what string, g given) {
	if !w.world.tracing {
		return
	}
	op := [...]string{"take", "extend", "release", "ping"}[g.Op]
	answer := fmt.Sprint(g.OK)
	if g.Err != nil {
		answer = g.Err.Error()
	} else if g.Holder != "" {
		answer = "taken by " + noteOf(g.Holder)
	}
	w.world.note("%s %s%s %s: %s", w.name(), what, op, noteOf(g.Token), answer)
}

func (w *way) name() string { return w.process.client.name() + "-" + w.host.name }
