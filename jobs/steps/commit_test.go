package steps_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/jobs"
)

// A cutter stands between us and a database, and cuts the line at a COMMIT: before
// the server has it, or after.
type cutter struct {
	door   net.Listener
	target string

	mu     sync.Mutex
	before bool          // cut before the server has the COMMIT
	quiet  bool          // and do not let it know
	delay  time.Duration // else this long after it was sent on
	refuse bool          // from the cut on, take no new connections
	cuts   int
}

func newCutter(t *testing.T, target string) *cutter {
	t.Helper()
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{door: door, target: target}
	t.Cleanup(func() { door.Close() })
	go func() {
		for {
			client, err := door.Accept()
			if err != nil {
				return
			}
			go c.serve(client)
		}
	}()
	return c
}

func (c *cutter) serve(client net.Conn) {
	defer client.Close()
	c.mu.Lock()
	refused := c.refuse && c.cuts > 0
	c.mu.Unlock()
	server, err := net.Dial("tcp", c.target)
	if err != nil || refused {
		return
	}
	var mute atomic.Bool // no answer to a COMMIT gets through
	hungUp := make(chan struct{})
	defer c.leave(server, hungUp)
	go answers(server, client, &mute, hungUp)
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		commit := bytes.Contains(buf[:n], []byte("COMMIT"))
		c.mu.Lock()
		before, delay := c.before, c.delay
		if commit {
			c.cuts++
		}
		c.mu.Unlock()
		mute.Store(commit)
		if commit && before {
			client.Close()
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
		if commit {
			time.Sleep(delay)
			return
		}
	}
}

// leave closes the server's side, or waits until the server does.
func (c *cutter) leave(server net.Conn, hungUp chan struct{}) {
	c.mu.Lock()
	quiet := c.quiet
	c.mu.Unlock()
	if quiet {
		<-hungUp
	}
	server.Close()
}

func answers(server, client net.Conn, mute *atomic.Bool, hungUp chan struct{}) {
	defer close(hungUp)
	defer client.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if !mute.Load() {
			client.Write(buf[:n])
		}
	}
}

func through(t *testing.T, db *target) (*target, *cutter) {
	t.Helper()
	u, err := url.Parse(db.url)
	if err != nil {
		t.Fatal(err)
	}
	c := newCutter(t, u.Host)
	u.Host = c.door.Addr().String()
	cut := *db
	cut.exec = executor(t, u.String())
	return &cut, c
}

func TestLostAnswerToCommitIsLookedUp(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, c := through(t, newTarget(t, kind))
			there := 0
			for round := range 40 {
				c.mu.Lock()
				c.before, c.delay = round%4 == 0, rand.N(2*time.Millisecond)
				c.mu.Unlock()
				h := holdOf(int64(round+1), jobs.Fence(round+1), sqlStep(insert))
				h.Run.Due = due.Add(time.Duration(round) * time.Minute)
				got := db.run(t, h)
				switch {
				case got.Status == jobs.Succeeded:
					there++
				case got.Status != jobs.Failed || got.Reason != jobs.ReasonStep:
					t.Errorf("round %d: %s(%s): %s", round, got.Status, got.Reason, got.Error)
				}
				if round%4 == 0 && got.Status == jobs.Succeeded {
					t.Errorf("round %d succeeded, and the server never had its COMMIT", round)
				}
				if count := db.effects(t); count != fmt.Sprint(there) {
					t.Fatalf("round %d ended as %s, and %s effects are there, not %d", round, got.Status, count, there)
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.cuts < 40 {
				t.Errorf("only %d of 40 commits were cut", c.cuts)
			}
			t.Logf("%d of 40 were committed", there)
		})
	}
}

func TestCommitThatCannotBeLookedUpIsUnknown(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, c := through(t, newTarget(t, kind))
			c.mu.Lock()
			c.refuse = true
			c.mu.Unlock()
			db.exec.LookUp = 300 * time.Millisecond
			got := db.run(t, holdOf(1, 7, sqlStep(insert)))
			want(t, got, jobs.Unknown, jobs.ReasonOutcome, "the answer to COMMIT never came")
		})
	}
}

func TestCommitThatTheServerStillWaitsForIsSettled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, c := through(t, newTarget(t, kind))
			c.mu.Lock()
			c.before, c.quiet = true, true
			c.mu.Unlock()
			h := holdOf(1, 7, sqlStep(insert))
			if kind == "mysql" { // the server gives up by itself
				h.Validity = func() time.Duration { return time.Second }
			} else { // we make it, well before it would
				db.exec.LookUp = 3 * time.Second
			}
			want(t, db.run(t, h), jobs.Failed, jobs.ReasonStep, "not committed")
			wantEffects(t, db, "0")
		})
	}
}
