package steps_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A tap stands between a client and a server, and springs a trap when the client
// sends something.
type tap struct {
	door   net.Listener
	target string

	mu   sync.Mutex
	trap *trap
}

// A trap springs when the client has sent a text so many times. Then do is called
// with what passes the text on to the server, which may be done at any time.
type trap struct {
	text  string
	times int
	do    func(pass func())
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
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	var answers sync.WaitGroup
	defer answers.Wait()
	answers.Go(func() {
		defer client.Close()
		defer server.Close()
		copyTo(client, server, func([]byte) *trap { return nil })
	})
	defer server.Close()
	copyTo(server, client, p.sprung)
}

func copyTo(to, from net.Conn, sprung func([]byte) *trap) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		pass := func() { _, err = to.Write(buf[:n]) }
		if trap := sprung(buf[:n]); trap != nil {
			trap.do(pass)
		} else {
			pass()
		}
		if err != nil {
			return
		}
	}
}
