package redlock

import (
	"sync"
	"time"
)

// A janitor removes keys of ours from masters that did not confirm that they are
// gone, until they do or the key's TTL has passed. It has no goroutine of its own:
// each chore is a question to a master, and each master that could not answer has one
// timer until it is asked again.
type janitor struct {
	timeout time.Duration
	pause   time.Duration

	mu     sync.Mutex
	closed bool
	chores map[*chore]struct{}
	later  map[Master][]*chore // those that wait for a while
}

// A chore is one key on one master.
type chore struct {
	janitor    *janitor
	master     Master
	key, token string
	free       bool      // the SET was answered: it does not matter what goes first
	until      time.Time // when the key is gone by itself
	times      int       // how many confirmations it still takes
}

// A lost SET is one that nobody answered: it may still be on its way on a connection
// that was given up, to a server that hangs. One release can overtake it; not two,
// with a pause between them. And it can arrive after any time, with its whole TTL, so
// that there is no instant at which the key is gone by itself.
const lost = 2

func newJanitor(timeout time.Duration) *janitor {
	return &janitor{timeout: timeout, pause: timeout / 2, chores: map[*chore]struct{}{}, later: map[Master][]*chore{}}
}

// release has the chore's key deleted if it holds our token.
func (j *janitor) release(c *chore) {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return
	}
	c.janitor = j
	j.chores[c] = struct{}{}
	j.mu.Unlock()
	c.do()
}

func (c *chore) do() {
	q := Question{Op: Release, Key: c.key, Token: c.token, Free: c.free, Deadline: time.Now().Add(c.janitor.timeout)}
	c.master.Ask(q, c, 0)
}

// Hear notes whether the key is gone, and puts the chore off if that is not sure.
func (c *chore) Hear(_ int, a Answer) {
	j := c.janitor
	j.mu.Lock()
	defer j.mu.Unlock()
	if a.Err == nil {
		c.times--
	}
	if over := !c.until.IsZero() && !time.Now().Before(c.until); c.times <= 0 || over || j.closed {
		delete(j.chores, c)
		return
	}
	waiting := j.later[c.master]
	j.later[c.master] = append(waiting, c)
	if len(waiting) == 0 {
		time.AfterFunc(j.pause, func() { j.again(c.master) })
	}
}

// again does what is owed on one master.
func (j *janitor) again(m Master) {
	j.mu.Lock()
	chores := j.later[m]
	delete(j.later, m)
	j.mu.Unlock()
	for _, c := range chores {
		c.do()
	}
}

// owed is how many keys the master may have that nobody wants.
func (j *janitor) owed(m Master) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for c := range j.chores {
		if c.master == m {
			n++
		}
	}
	return n
}

func (j *janitor) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	clear(j.later)
}
