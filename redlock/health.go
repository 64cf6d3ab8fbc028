package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A health is what is known of one Redis server, and whether it may vote.
//
// A server that was restarted may have forgotten a key that somebody still relies
// on, so its yes to a new lease would help a second owner. It gets no vote until
// every lease that it can have forgotten has ended: the delayed restart that the
// algorithm asks of operators, done by its clients. Extending and releasing need a
// key that is there, so a young server may take part in those.
type health struct {
	guard time.Duration // how long a restarted server gets no vote; < 0: always has one
	known *census

	barred atomic.Bool // may not vote on new leases, perhaps until a moment ago

	mu    sync.Mutex
	now   Status
	unfit error     // why it must not keep locks at all
	until time.Time // end of the quarantine
}

// A census knows which address answered with which run_id, so that one server
// behind two addresses does not vote twice.
type census struct {
	mu    sync.Mutex
	lives map[string]string // run_id to name
}

func (c *census) claim(runID, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.lives[runID]; ok && other != name {
		return fmt.Errorf("is the same server as %s: its vote would count double", other)
	}
	for id, n := range c.lives {
		if n == name {
			delete(c.lives, id)
		}
	}
	c.lives[runID] = name
	return nil
}

func newHealth(name string, guard time.Duration, known *census) *health {
	return &health{guard: guard, known: known, now: Status{Name: name, Err: errors.New("not asked yet")}}
}

// bar returns why the server may not vote on a new lease, or nil.
func (h *health) bar() error {
	if !h.barred.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	left := time.Until(h.until)
	switch {
	case h.unfit != nil:
		return h.unfit
	case left <= 0:
		h.barred.Store(false)
		return nil
	}
	return fmt.Errorf("in quarantine for %s more: %s", left.Round(time.Millisecond), h.now.Why)
}

func (h *health) status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.now
	if s.Err == nil {
		s.Err = h.unfit
	}
	if time.Until(h.until) > 0 {
		s.Quarantined = h.until
	} else {
		s.Why = ""
	}
	return s
}

// answered keeps how long the last answer took, or why there was none.
func (h *health) answered(took time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Err = err
	if err == nil {
		h.now.RoundTrip = took
	}
}

// greet runs on each new connection, before any question: it looks at who answers
// and what our user may do there, and refuses the connection where that is not enough
// to take and to release a lock. A connection cannot outlive the process at its other
// end, so what is found of a server's life holds for all of the connection.
func (m *redisMaster) greet(ctx context.Context, conn *redis.Conn) error {
	pipe := conn.Pipeline()
	info := pipe.Info(ctx)
	pipe.ScriptLoad(ctx, extendSource)
	pipe.ScriptLoad(ctx, releaseSource)
	if _, err := pipe.Exec(ctx); err != nil {
		return explain(err)
	}
	if err := m.health.meet(parseInfo(info.Val())); err != nil {
		return err
	}
	return mayDo(ctx, conn)
}

// mayDo tries what a lock takes on a key that nobody has. Which keys the user may
// touch is not known here, and shows when a lock is taken.
func mayDo(ctx context.Context, conn *redis.Conn) error {
	key := newToken("quorate")
	pipe := conn.Pipeline()
	pipe.Get(ctx, key)
	pipe.Del(ctx, key)
	pipe.PExpire(ctx, key, time.Second)
	pipe.EvalSha(ctx, releaseSHA, []string{key}, "")
	commands, _ := pipe.Exec(ctx)
	for _, c := range commands {
		var answer redis.Error
		switch err := c.Err(); {
		case err == nil || errors.Is(err, redis.Nil):
		case !errors.As(err, &answer):
			return explain(err)
		case strings.Contains(err.Error(), "permissions to run"):
			return fmt.Errorf("the user may not use %s, and could not release what it locks: give it +get +set +del +pexpire +evalsha", strings.ToUpper(c.Name()))
		}
	}
	return nil
}

func parseInfo(text string) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts
}

// meet judges a server by its INFO, when it is connected to and ever again while the
// connection lasts: it may be made a replica, or be told to evict.
func (h *health) meet(info map[string]string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Version, h.now.Role = info["redis_version"], info["role"]
	h.unfit = unfit(info)
	if h.unfit == nil {
		h.unfit = h.known.claim(info["run_id"], h.now.Name)
	}
	if h.unfit == nil {
		h.unfit = h.age(info["run_id"], info["uptime_in_seconds"])
	}
	h.barred.Store(h.unfit != nil || time.Until(h.until) > 0)
	return h.unfit
}

// age sees whether this is another life of the server, and how long it lasts.
func (h *health) age(runID, seconds string) error {
	uptime, err := strconv.Atoi(seconds)
	if err != nil {
		return errors.New("INFO does not tell its uptime")
	}
	// The server subtracts one whole second from another, so that a birth at 10.9 makes
	// it a second old at 11.0: it is this old at least, if a second less is said.
	age := time.Duration(max(0, uptime-1)) * time.Second
	switch {
	case h.guard < 0:
	case h.now.RunID != "" && h.now.RunID != runID:
		h.until = time.Now().Add(h.guard)
		h.now.Why = "another server answers at this address now, or it was restarted"
	case h.now.RunID == "" && age < h.guard:
		h.until = time.Now().Add(h.guard - age)
		h.now.Why = fmt.Sprintf("it was started %s ago and may have forgotten a lock", age)
	}
	h.now.RunID = runID
	return nil
}

// unfit returns why a server must not keep locks at all, or nil.
func unfit(info map[string]string) error {
	major, _, _ := strings.Cut(info["redis_version"], ".")
	if n, err := strconv.Atoi(major); err == nil && n < 7 {
		return fmt.Errorf("runs Redis %s: want 7.0 or newer", info["redis_version"])
	}
	if role := info["role"]; role != "master" {
		return fmt.Errorf("its role is %q: want an independent master", role)
	}
	if info["cluster_enabled"] == "1" {
		return errors.New("is part of a cluster: want an independent master")
	}
	if limit, policy := info["maxmemory"], info["maxmemory_policy"]; limit != "0" && limit != "" && policy != "noeviction" {
		return fmt.Errorf("may evict locks: its maxmemory-policy is %s, want noeviction", policy)
	}
	return nil
}
