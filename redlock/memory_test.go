package redlock

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A server is a Redis in memory: string keys with a TTL, by a clock of its own that
// runs fast or slow and may be set. Its methods want the lock of whoever moves
// questions to it: it is the network that decides what happens to whom.
type server struct {
	name  string
	begun time.Time
	rate  float64       // seconds of its clock in a second of ours
	set   time.Duration // how far its clock was set
	life  int
	born  time.Duration // when this life began, by its clock
	keys  map[string]entry
	saved map[string]entry // what it wrote to its disk a while ago
}

type entry struct {
	token   string
	expires time.Duration
}

// newServer returns a server that has been up for an hour.
func newServer(i int) *server {
	return &server{
		name: fmt.Sprintf("master%d", i+1), begun: time.Now(), rate: 1,
		born: -time.Hour, keys: map[string]entry{}, saved: map[string]entry{},
	}
}

func (s *server) clock() time.Duration {
	return time.Duration(float64(time.Since(s.begun))*s.rate) + s.set
}

// alive returns the keys that have not expired.
func (s *server) alive() map[string]entry {
	now := s.clock()
	maps.DeleteFunc(s.keys, func(_ string, e entry) bool { return e.expires <= now })
	return s.keys
}

// do is what SET NX GET PX and the two scripts do.
func (s *server) do(q Question) Answer {
	now := s.clock()
	has, taken := s.keys[q.Key]
	taken = taken && has.expires > now
	ours := taken && has.token == q.Token
	switch {
	case q.Op == Ping:
		return Answer{OK: true}
	case q.Op == Take && taken:
		return Answer{OK: ours, Holder: has.token}
	case q.Op == Take, q.Op == Extend && ours:
		s.keys[q.Key] = entry{q.Token, now + q.TTL}
		return Answer{OK: true}
	case q.Op == Release && ours:
		delete(s.keys, q.Key)
		return Answer{OK: true}
	}
	return Answer{}
}

// restart begins a new life with these keys.
func (s *server) restart(keys map[string]entry) {
	s.life++
	s.born = s.clock()
	s.keys = maps.Clone(keys)
}

// info is what [health.meet] wants to know.
func (s *server) info() map[string]string {
	return map[string]string{
		"run_id":            fmt.Sprintf("%s-%d", s.name, s.life),
		"redis_version":     "7.0.15",
		"role":              "master",
		"uptime_in_seconds": strconv.Itoa(int((s.clock() - s.born) / time.Second)),
	}
}

// A stepped master does nothing by itself: what was asked waits until a test lets
// it arrive, and so does the answer. With both in the hand of the test, every order
// of events can be had. In all else it does what redisMaster does.
type stepped struct {
	at     *server
	health *health

	baton   *sync.Mutex
	vote    *ballot // that a key was asked for
	met     bool    // there is a connection
	life    int     // of the server that it met
	sent    []asked // over the connection, not arrived
	answers []given // given, not heard
	waiting []asked // until everything before is answered
	stray   []asked // sent over a connection that broke, and not arrived
	patient int     // how many questions may still overtake them
}

// A given answer is on its way.
type given struct {
	asked
	Answer
}

func newStepped(at *server, guard time.Duration, known *census, baton *sync.Mutex) *stepped {
	m := &stepped{at: at, baton: baton, health: newHealth(at.name, guard, known)}
	m.meet()
	return m
}

func (m *stepped) meet() {
	if err := m.health.meet(m.at.info()); err != nil {
		panic(err) // all that our servers say of themselves is fit
	}
	m.met, m.life = true, m.at.life
}

func (m *stepped) Name() string   { return m.at.name }
func (m *stepped) Status() Status { return m.health.status() }
func (m *stepped) Close()         {}

func (m *stepped) Ask(q Question, hearer Hearer, seat int) {
	if q.Op == Take {
		m.vote = hearer.(*ballot)
		if err := m.health.bar(); err != nil {
			hearer.Hear(seat, Answer{Err: err})
			return
		}
	}
	m.baton.Lock()
	unsent := slices.IndexFunc(m.waiting, func(w asked) bool { return w.Op == Take && w.Token == q.Token })
	if q.Op == Release && !q.Free && unsent >= 0 {
		w := m.waiting[unsent]
		m.waiting = slices.Delete(m.waiting, unsent, unsent+1)
		m.baton.Unlock()
		w.hear(Answer{Err: errUnsent})
		hearer.Hear(seat, Answer{OK: true})
		return
	}
	defer m.baton.Unlock()
	if a := (asked{Question: q, hearer: hearer, seat: seat}); len(m.sent)+len(m.answers) == 0 {
		m.sent = append(m.sent, a)
	} else {
		m.waiting = append(m.waiting, a)
	}
}

// send sends what waits, free releases first, less what has waited too long.
func (m *stepped) send() {
	waiting := m.waiting
	m.waiting = nil
	slices.SortStableFunc(waiting, func(a, b asked) int {
		switch {
		case a.Free == b.Free:
			return 0
		case a.Free:
			return -1
		}
		return 1
	})
	for _, a := range waiting {
		if a.Op != Release && time.Now().After(a.Deadline) {
			m.answers = append(m.answers, given{a, Answer{Err: errTimeout}})
		} else {
			m.sent = append(m.sent, a)
		}
	}
}

// arrive lets the server have the oldest question.
func (m *stepped) arrive() {
	if !m.met {
		m.meet()
	}
	if m.patient--; m.patient < 0 {
		m.straggle()
	}
	a := m.sent[0]
	m.sent = m.sent[1:]
	m.answers = append(m.answers, given{a, m.at.do(a.Question)})
}

// answer lets the client have the oldest answer. It believes no yes of a server in
// quarantine.
func (m *stepped) answer() {
	m.baton.Lock()
	g := m.answers[0]
	m.baton.Unlock()
	if g.Op == Take && g.OK {
		if err := m.health.bar(); err != nil {
			g.Answer = Answer{Err: err, Sent: true}
		}
	}
	m.baton.Lock()
	m.answers = m.answers[1:]
	if len(m.sent)+len(m.answers) == 0 {
		m.send()
	}
	m.baton.Unlock()
	g.hear(g.Answer)
}

// straggle lets arrive what was sent before the connection broke.
func (m *stepped) straggle() {
	for _, a := range m.stray {
		m.at.do(a.Question)
	}
	m.stray = nil
}

// cut breaks the connection at the client: it hears no more of what was sent.
func (m *stepped) cut() {
	for i := range m.answers {
		m.answers[i].Answer = Answer{Err: errCut, Sent: true}
	}
	m.reset()
}

// reset breaks the connection at the server: it hears the answers under way, and
// then that there are no more.
func (m *stepped) reset() {
	m.met = false
	for _, a := range m.sent {
		m.answers = append(m.answers, given{a, Answer{Err: errCut, Sent: true}})
	}
	m.sent = nil
}

var errCut = errors.New("connection is broken")
