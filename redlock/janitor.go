package redlock

import (
	"sync"
	"time"
)

// A janitor removes keys of ours from masters that did not confirm that they are
// gone, until they do or the key's TTL has passed. It has no goroutine of its own:
// each chore is a question to a master, or a timer that will ask it again.
type janitor struct {
	timeout time.Duration
	pause   time.Duration

	mu     sync.Mutex
	closed bool
	chores map[*chore]struct{}
}

// A chore is one key on one master.
type chore struct {
	janitor    *janitor
	master     Master
	key, token string
	until      time.Time
	times      int // how many confirmations it still takes
	again      *time.Timer
}

func newJanitor(timeout time.Duration) *janitor {
	return &janitor{timeout: timeout, pause: timeout / 2, chores: map[*chore]struct{}{}}
}

// release asks the master to delete the key if it holds our token, and repeats
// that until it was confirmed the given number of times.
func (j *janitor) release(m Master, key, token string, until time.Time, times int) {
	c := &chore{janitor: j, master: m, key: key, token: token, until: until, times: times}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return
	}
	j.chores[c] = struct{}{}
	j.mu.Unlock()
	j.do(c)
}

func (j *janitor) do(c *chore) {
	c.master.Ask(Question{Op: Release, Key: c.key, Token: c.token, Deadline: time.Now().Add(j.timeout)}, c, 0)
}

// Hear notes whether the key is gone, and asks again later if that is not sure.
func (c *chore) Hear(_ int, a Answer) {
	if a.Err == nil {
		c.times--
	}
	j := c.janitor
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.times <= 0 || j.closed || !time.Now().Before(c.until) {
		delete(j.chores, c)
		return
	}
	c.again = time.AfterFunc(j.pause, func() { j.do(c) })
}

func (j *janitor) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	for c := range j.chores {
		if c.again != nil {
			c.again.Stop()
		}
	}
}
