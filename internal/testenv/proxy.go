package testenv

import (
	"net"
	"sync"
	"testing"
	"time"
)

// A Mode is what a proxy does with the bytes that come to it. Bytes that came
// before the mode was set may still arrive under the old one.
type Mode int

// The modes of a proxy.
const (
	Pass   Mode = iota // forward everything
	Hang               // hold everything, both ways, until another mode; still accept connections
	Mute               // forward requests, swallow their answers
	Refuse             // cut what is open, refuse what is new
)

// A Proxy stands between a test and a server, and breaks the network on demand.
type Proxy struct {
	t      testing.TB
	target string
	addr   string
	pumps  sync.WaitGroup

	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed when the mode changes
	door    net.Listener
	open    map[net.Conn]bool
}

// NewProxy stands in front of target (host:port) until the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	door, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, target: target, addr: door.Addr().String(), door: door,
		changed: make(chan struct{}), open: map[net.Conn]bool{}}
	p.pumps.Go(func() { p.serve(door) })
	t.Cleanup(func() {
		p.Set(Refuse)
		p.pumps.Wait()
	})
	return p
}

// Addr is the host:port to connect to.
func (p *Proxy) Addr() string { return p.addr }

// Set changes the mode. Leaving Mute cuts the connections, as their answers have
// a hole.
func (p *Proxy) Set(mode Mode) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.mode
	p.mode = mode
	close(p.changed)
	p.changed = make(chan struct{})
	if mode == was {
		return
	}
	if mode == Refuse {
		p.door.Close()
	}
	if mode == Refuse || was == Mute {
		p.cut()
	}
	if was == Refuse {
		door, err := net.Listen("tcp", p.addr)
		if err != nil {
			p.t.Fatalf("proxy: open %s again: %v", p.addr, err)
		}
		p.door = door
		p.pumps.Go(func() { p.serve(door) })
	}
}

// Cut closes all connections, and keeps the mode for new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	for conn := range p.open {
		conn.Close()
	}
	clear(p.open)
}

func (p *Proxy) serve(door net.Listener) {
	for {
		client, err := door.Accept()
		if err != nil {
			return // closed by Refuse
		}
		server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = true, true
		if p.mode == Refuse {
			p.cut()
		}
		p.mu.Unlock()
		p.pumps.Go(func() { p.pump(server, client, false) })
		p.pumps.Go(func() { p.pump(client, server, true) })
	}
}

// pump forwards until either side closes.
func (p *Proxy) pump(to, from net.Conn, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		mode := p.await()
		if err == nil && !(answers && mode == Mute) {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, to)
	delete(p.open, from)
	to.Close()
	from.Close()
}

// await returns the mode, once it is another than Hang.
func (p *Proxy) await() Mode {
	for {
		p.mu.Lock()
		mode, changed := p.mode, p.changed
		p.mu.Unlock()
		if mode != Hang {
			return mode
		}
		<-changed
	}
}
