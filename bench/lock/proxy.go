//go:build unix

package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A proxy stands before a server and delivers its answers late. What waits is
// queued, so that it costs time and never throughput, like a longer cable.
type proxy struct {
	door   net.Listener
	target string
	late   atomic.Int64

	mu    sync.Mutex
	shut  bool
	open  []net.Conn
	pumps sync.WaitGroup
}

func newProxy(target string) (*proxy, error) {
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{door: door, target: target}
	p.pumps.Go(p.serve)
	return p, nil
}

func (p *proxy) addr() string { return p.door.Addr().String() }

// delay is for answers that come from now on; it may not shrink.
func (p *proxy) delay(by time.Duration) { p.late.Store(int64(by)) }

func (p *proxy) close() error {
	err := p.door.Close()
	p.mu.Lock()
	p.shut = true
	for _, conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.pumps.Wait()
	return err
}

func (p *proxy) serve() {
	for {
		near, err := p.door.Accept()
		if err != nil {
			return // closed
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, near, far)
		if p.shut {
			_, _ = near.Close(), far.Close()
		}
		p.mu.Unlock()

		answers := make(chan parcel, 1<<14)
		p.pumps.Go(func() { forward(far, near) })
		p.pumps.Go(func() { p.collect(far, answers) })
		p.pumps.Go(func() { deliver(near, answers) })
	}
}

// forward passes the requests on.
func forward(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A parcel is some bytes and when they are to arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

func (p *proxy) collect(from net.Conn, answers chan<- parcel) {
	defer close(answers)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		answers <- parcel{append([]byte(nil), buf[:n]...), time.Now().Add(time.Duration(p.late.Load()))}
	}
}

// deliver takes every parcel, also when nobody wants them any more, so that collect
// can end.
func deliver(to net.Conn, answers <-chan parcel) {
	defer to.Close()
	for a := range answers {
		if wait := time.Until(a.due); wait > 0 {
			time.Sleep(wait)
		}
		_, _ = to.Write(a.bytes)
	}
}
