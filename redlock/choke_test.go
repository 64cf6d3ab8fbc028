package redlock_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/redlock"
)

// A choke stands before a master and can stop reading what a client sends, while it
// goes on passing what the master says: a write then blocks as soon as the buffers
// between are full.
type choke struct {
	addr string
	door net.Listener
	shut chan struct{} // closed when nothing is read any more
	open chan struct{} // closed when reading goes on, at the end
}

func newChoke(t *testing.T, target string) *choke {
	t.Helper()
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = door.Close() })
	c := &choke{addr: door.Addr().String(), door: door, open: make(chan struct{}), shut: make(chan struct{})}
	t.Cleanup(func() { close(c.open) })
	go c.serve(target)
	return c
}

func (c *choke) serve(target string) {
	for {
		client, err := c.door.Accept()
		if err != nil {
			return
		}
		_ = client.(*net.TCPConn).SetReadBuffer(4 << 10) // as on a slow network
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		go func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		}()
		go c.forward(server, client)
	}
}

func (c *choke) forward(server, client net.Conn) {
	defer server.Close()
	for buf := make([]byte, 4<<10); ; {
		select {
		case <-c.shut:
			<-c.open
		default:
		}
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// One master of five reads nothing any more, just when much is to be written to it.
func TestAMasterThatReadsNothingHoldsNobodyUp(t *testing.T) {
	masters := testenv.Masters(t, 5)
	narrow := newChoke(t, masters[0].Addr())
	urls := urlsOf(masters)
	urls[0] = "redis://" + narrow.addr
	opts := redlock.Options{RestartGuard: -1, MasterTimeout: 30 * time.Second}
	l := warm(t, opts, urls)
	masters[0].Stop()
	// What is asked now waits for the answer to the first, and is megabytes.
	long := strings.Repeat("n", redlock.MaxKey)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := range 30 {
				lease, err := l.Acquire(context.Background(), fmt.Sprintf("%0500d", i*30+n), time.Minute, long)
				if err == nil {
					err = lease.Release()
				}
				if err != nil {
					t.Errorf("%.90s", err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(narrow.shut)
	masters[0].Cont()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		start := time.Now()
		lease, err := l.Acquire(t.Context(), "k", time.Minute, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("a lock took %s because of one master", took)
		}
	}
}
