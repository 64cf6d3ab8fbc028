package redlock

import (
	"cmp"
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed extend.lua
	extendSource string
	//go:embed release.lua
	releaseSource string

	extendSHA, releaseSHA = scriptSHA(extendSource), scriptSHA(releaseSource)
)

func scriptSHA(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // it is the name that Redis gives a script
	return hex.EncodeToString(sum[:])
}

const (
	// queueDepth is how many questions may wait for one master. One that hangs
	// fills it; then the answer is an error at once, not a growing pile.
	queueDepth = 4096

	// connectWithin is how long a new connection may take, handshake included. That
	// is longer than a question may wait: questions do not wait for it, they run out.
	connectWithin = time.Second

	// patience is how long a connection may owe an answer before it is given up for
	// a new one. It is long, because what was asked in order on one connection is
	// done in order, however late: a release cannot overtake its SET.
	patience = 10 * time.Second

	// redialAfter is how long a master that could not be reached is left alone.
	redialAfter = 100 * time.Millisecond
)

// A redisMaster asks one Redis server, over one connection, in the order in which
// it was asked. The caller that finds the connection idle writes by itself; what is
// asked while answers are on their way is written in one go when they are there. So
// a master costs one connection and one goroutine, however many callers there are,
// and the more callers, the fewer system calls each.
type redisMaster struct {
	name    string
	driver  *redis.Options
	health  *health
	ctx     context.Context // ends when the master is closed
	stop    context.CancelFunc
	ended   sync.WaitGroup
	wanted  chan struct{} // somebody waits for a connection
	watcher *watcher

	mu      sync.Mutex
	link    *link // nil while there is none
	waiting []asked
	closed  bool
	down    error // why there is no link, until that is tried again at redial
	redial  time.Time
}

// asked is a question, and who wants to hear the answer, if anybody does.
type asked struct {
	Question
	hearer Hearer
	seat   int
	again  bool // it was asked before, and the server had forgotten our scripts
	joined int  // of the first of several releases that travel as one: how many
}

func (a asked) hear(answer Answer) {
	if a.hearer != nil {
		a.hearer.Hear(a.seat, answer)
	}
}

func newRedisMaster(rawURL string, opts Options, known *census, gone *waiters) (*redisMaster, error) {
	ro, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	m := &redisMaster{name: ro.Addr, wanted: make(chan struct{}, 1)}
	if ro.DB != 0 {
		m.name = fmt.Sprintf("%s/%d", ro.Addr, ro.DB)
	}
	m.health = newHealth(m.name, opts.RestartGuard, known)
	if ro.TLSConfig != nil && opts.TLS != nil {
		name := ro.TLSConfig.ServerName
		ro.TLSConfig = opts.TLS.Clone()
		ro.TLSConfig.ServerName = cmp.Or(opts.TLS.ServerName, name)
	}
	forLocks(ro)
	ro.OnConnect = m.greet
	m.driver = ro
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.watcher = &watcher{ctx: m.ctx, driver: ro, gone: gone}
	m.ended.Go(m.serve)
	return m, nil
}

// Silence turns off what the Redis driver prints on stderr at each failed dial. The
// driver has one such setting for the whole process, so this is for a program to
// decide, and not for New; what there is to say is in the errors and in Status.
func Silence() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func (m *redisMaster) Name() string { return m.name }

func (m *redisMaster) Status() Status {
	s := m.health.status()
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Err == nil && m.link != nil && m.link.overdue() {
		s.Err = errTimeout
	}
	return s
}

var (
	errClosed = errors.New("locker is closed")
	errUnsent = errors.New("it was released before it was asked")
	errQueue  = fmt.Errorf("%d questions wait for an answer already", queueDepth)
)

// Ask writes the question, or leaves it for the goroutine to write. A release whose SET
// was not written yet makes both needless: a slow master is asked only what is still
// wanted when its turn comes.
func (m *redisMaster) Ask(q Question, hearer Hearer, seat int) {
	unsent, err := m.accept(asked{Question: q, hearer: hearer, seat: seat})
	switch {
	case err != nil:
		hearer.Hear(seat, Answer{Err: err})
	case unsent.hearer != nil:
		unsent.hear(Answer{Err: errUnsent})
		hearer.Hear(seat, Answer{OK: true})
	}
}

func (m *redisMaster) accept(a asked) (unsent asked, err error) {
	if a.Op == Take {
		if err := m.health.bar(); err != nil {
			return unsent, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.Op == Release && !a.Free {
		if i := m.unsent(a); i >= 0 {
			unsent = m.waiting[i]
			m.waiting = slices.Delete(m.waiting, i, i+1)
			return unsent, nil
		}
	}
	switch {
	case m.closed:
		return unsent, errClosed
	case m.link == nil && a.Op != Ping && time.Now().Before(m.redial):
		return unsent, m.down
	case m.link == nil:
		return unsent, m.enqueue(a)
	case len(m.link.flying) > 0 || len(m.waiting) > 0:
		return unsent, m.enqueue(a)
	}
	m.link.flying = append(m.link.flying, a)
	m.link.send()
	return unsent, nil
}

// unsent is where the SET waits that this release is to undo, or -1.
func (m *redisMaster) unsent(release asked) int {
	for i := len(m.waiting) - 1; i >= 0; i-- {
		if w := &m.waiting[i]; w.Op == Take && w.Token == release.Token && w.Key == release.Key {
			return i
		}
	}
	return -1
}

// enqueue leaves the question to be written when the link is there, or idle again.
func (m *redisMaster) enqueue(a asked) error {
	if len(m.waiting) >= queueDepth {
		return errQueue
	}
	m.waiting = append(m.waiting, a)
	if m.link == nil {
		select {
		case m.wanted <- struct{}{}:
		default:
		}
	}
	return nil
}

func (m *redisMaster) Close() {
	m.stop()
	m.ended.Wait()
	m.watcher.ended.Wait()
	m.refuse(errClosed, true)
}
