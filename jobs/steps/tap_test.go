package steps_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// A tap stands between clients and a server, and springs a trap when a client sends
// something.
type tap struct {
	door   net.Listener
	target string
	closed atomic.Bool // no new line gets through

	mu   sync.Mutex
	trap *trap
}

// A trap springs when a text was sent so many times. What was sent reaches the
// server when do passes it on.
type trap struct {
	text  string
	times int
	do    func(l *line, pass func())
}

// A line is one connection.
type line struct {
	client, server net.Conn
	mute           atomic.Bool // no more answers get through
	hungUp         chan struct{}
}

// newTap stands before the server of a URL, and returns the URL that leads through.
func newTap(t *testing.T, through string) (*tap, string) {
	t.Helper()
	u, err := url.Parse(through)
	if err != nil {
		t.Fatal(err)
	}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{door: door, target: u.Host}
	u.Host = door.Addr().String()
	var open sync.WaitGroup
	open.Go(func() {
		for {
			client, err := door.Accept()
			if err != nil {
				return
			}
			open.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		door.Close()
		open.Wait()
	})
	return p, u.String()
}

// set lays a trap, in the place of the one before.
func (p *tap) set(trap *trap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = trap
}

// sprung returns the trap, once, if this is the piece that it waits for.
func (p *tap) sprung(piece []byte) *trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trap == nil || !bytes.Contains(piece, []byte(p.trap.text)) {
		return nil
	}
	if p.trap.times--; p.trap.times > 0 {
		return nil
	}
	trap := p.trap
	p.trap = nil
	return trap
}

func (p *tap) serve(client net.Conn) {
	defer client.Close()
	if p.closed.Load() {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	l := &line{client: client, server: server, hungUp: make(chan struct{})}
	go l.answers()
	defer func() { <-l.hungUp }()
	defer server.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		pass := func() { _, err = server.Write(buf[:n]) }
		if trap := p.sprung(buf[:n]); trap != nil {
			trap.do(l, pass)
		} else {
			pass()
		}
		if err != nil {
			return
		}
	}
}

func (l *line) answers() {
	defer close(l.hungUp)
	defer l.client.Close()
	defer l.server.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		if !l.mute.Load() {
			_, _ = l.client.Write(buf[:n])
		}
	}
}

// through is a target whose steps reach it by way of a tap; the test itself does not.
func through(t *testing.T, db *target) (*target, *tap) {
	t.Helper()
	p, url := newTap(t, db.url)
	tapped := *db
	tapped.exec = executor(t, url)
	return &tapped, p
}
