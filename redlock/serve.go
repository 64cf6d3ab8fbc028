package redlock

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"time"
)

// serve keeps a connection for as long as somebody asks, and reads its answers.
func (m *redisMaster) serve() {
	for {
		select {
		case <-m.ctx.Done():
			m.refuse(errClosed, true)
			return
		case <-m.wanted:
		}
		l, err := m.connect()
		if err != nil {
			m.health.answered(0, err)
			m.refuse(err, false)
			continue
		}
		unhook := context.AfterFunc(m.ctx, func() { _ = l.conn.Close() })
		m.adopt(l)
		err = m.listen(l)
		unhook()
		_ = l.conn.Close()
		m.drop(l, explain(err))
	}
}

// adopt makes the link the one that callers use, and writes what waits.
func (m *redisMaster) adopt(l *link) {
	m.mu.Lock()
	m.link = l
	m.mu.Unlock()
	m.moveOn(l)
}

// moveOn writes what waits once everything is answered.
func (m *redisMaster) moveOn(l *link) {
	m.mu.Lock()
	if l.next < len(l.flying) {
		m.mu.Unlock()
		return
	}
	if len(l.flying) > 1 { // those who just had an answer ask again at once: in this batch
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	late := m.takeWaiting(l)
	busy := len(l.flying) > 0
	m.mu.Unlock()
	for _, a := range late {
		a.hear(Answer{Err: errTimeout})
	}
	if busy { // and nobody else touches the link; otherwise the next caller does
		l.send()
	}
}

// takeWaiting makes what was asked meanwhile what flies, with the releases that may
// go first in front, where they travel as one. It returns what has waited too long to
// be asked at all; releases are never in vain.
func (m *redisMaster) takeWaiting(l *link) (late []asked) {
	clear(l.flying)
	l.flying, l.next = l.flying[:0], 0
	now := time.Now()
	for _, a := range m.waiting {
		if a.Free || a.Op == load {
			l.flying = append(l.flying, a)
		}
	}
	for _, a := range m.waiting {
		switch {
		case a.Free || a.Op == load:
		case a.Op == Release || now.Before(a.Deadline):
			l.flying = append(l.flying, a)
		default:
			late = append(late, a)
		}
	}
	clear(m.waiting)
	m.waiting = m.waiting[:0]
	return late
}

// listen reads answers until the link breaks.
func (m *redisMaster) listen(l *link) error {
	for {
		r, err := l.wire.read()
		switch {
		case err != nil && m.onlyIdle(l, err):
			continue
		case err != nil:
			return err
		case r.kind == '*': // what follows are the answers to as many releases
			l.listed = int(r.number)
			continue
		}
		if err := m.heard(l, r); err != nil {
			return err
		}
		m.moveOn(l)
	}
}

// heard passes an answer on to whoever waits for it, and an error instead of a list
// to all.
func (m *redisMaster) heard(l *link, r reply) error {
	a, took, ok := m.answered(l)
	listed := l.listed > 0
	if !ok || a.Op == Release && !listed && r.kind != '-' || a.Op != Release && listed {
		return errors.New("it answered what was not asked")
	}
	if took > 0 {
		m.health.answered(took, nil)
	}
	if listed {
		l.listed--
	}
	if r.kind != '-' || listed || a.joined <= 1 && !forgot(a, r) {
		a.hear(m.judge(l, a.Question, r))
		return nil
	}
	all := []asked{a}
	for range a.joined - 1 {
		other, _, _ := m.answered(l)
		all = append(all, other)
	}
	if forgot(a, r) {
		m.teach(all)
		return nil
	}
	for _, a := range all {
		a.hear(m.judge(l, a.Question, r))
	}
	return nil
}

// forgot reports whether the server would do what it was asked if it knew the script.
func forgot(a asked, r reply) bool {
	return !a.again && strings.HasPrefix(string(r.text), "NOSCRIPT")
}

// judge is what a reply means, from a server that may not vote on everything.
func (m *redisMaster) judge(l *link, q Question, r reply) Answer {
	if q.Op == Ping && r.kind == '$' {
		err := m.health.meet(parseInfo(string(r.text)))
		return Answer{OK: err == nil, Err: err}
	}
	answer := l.wire.answer(q, r)
	if q.Op == Take && answer.OK {
		if err := m.health.bar(); err != nil {
			return Answer{Err: err, Sent: true} // connection and server are new
		}
	}
	return answer
}

// teach has a server that forgot our scripts learn them, and asks once more.
func (m *redisMaster) teach(all []asked) {
	again := []asked{{Question: Question{Op: load, Key: extendSource}}, {Question: Question{Op: load, Key: releaseSource}}}
	for _, a := range all {
		a.again, a.joined = true, 0
		again = append(again, a)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = append(again, m.waiting...)
}

// onlyIdle reports whether reading ended because nothing had been asked for a while.
func (m *redisMaster) onlyIdle(l *link, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	var netErr net.Error
	if !errors.As(err, &netErr) || !netErr.Timeout() || l.next < len(l.flying) {
		return false
	}
	l.limit = time.Time{}
	return l.conn.SetDeadline(l.limit) == nil
}

// answered returns whose answer the next reply is, and for the last of a batch how
// long it took.
func (m *redisMaster) answered(l *link) (a asked, took time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.next == len(l.flying) {
		return a, 0, false
	}
	a = l.flying[l.next]
	l.flying[l.next] = asked{}
	l.next++
	if l.next == len(l.flying) {
		took = time.Since(l.since)
	}
	return a, took, true
}

// drop gives the link up. What was written may have been done; what waits was not.
func (m *redisMaster) drop(l *link, why error) {
	m.mu.Lock()
	m.link = nil
	flying := l.flying[l.next:]
	again := len(m.waiting) > 0
	m.mu.Unlock()
	if m.ctx.Err() == nil {
		m.health.answered(0, why)
	}
	for _, a := range flying {
		a.hear(Answer{Err: why, Sent: true})
	}
	if again {
		select {
		case m.wanted <- struct{}{}:
		default:
		}
	}
}

// refuse answers everything that waits with an error.
func (m *redisMaster) refuse(why error, forGood bool) {
	m.mu.Lock()
	waiting := m.waiting
	m.waiting = nil
	m.closed = m.closed || forGood
	m.down, m.redial = why, time.Now().Add(redialAfter)
	m.mu.Unlock()
	for _, a := range waiting {
		a.hear(Answer{Err: why})
	}
}
