package testenv

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"testing"
)

// An echo answers each line with "got LINE", and tells which lines came.
func echo(t *testing.T) (addr string, lines <-chan string) {
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 100)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { answer(conn, heard) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String(), heard
}

func answer(conn net.Conn, heard chan<- string) {
	defer conn.Close()
	for in := bufio.NewScanner(conn); in.Scan(); {
		heard <- in.Text()
		fmt.Fprintf(conn, "got %s\n", in.Text())
	}
}

func TestProxyPasses(t *testing.T) {
	addr, _ := echo(t)
	w := dial(t, NewProxy(t, addr).Addr())
	w.say("a")
	w.hear("got a")
}

func TestHungProxyHoldsEverythingUntilItPasses(t *testing.T) {
	addr, lines := echo(t)
	p := NewProxy(t, addr)
	before := dial(t, p.Addr())
	p.Set(Hang)
	during := dial(t, p.Addr())
	before.say("a")
	during.say("b")
	before.silent()
	during.silent()
	if len(lines) != 0 {
		t.Errorf("%q came through", <-lines)
	}
	p.Set(Pass)
	before.hear("got a")
	during.hear("got b")
}

func TestMuteProxyForwardsRequestsAndSwallowsAnswers(t *testing.T) {
	addr, lines := echo(t)
	p := NewProxy(t, addr)
	w := dial(t, p.Addr())
	p.Set(Mute)
	w.say("a")
	if got := <-lines; got != "a" {
		t.Errorf("server heard %q, want a", got)
	}
	w.silent()
	p.Set(Pass)
	w.over() // an answer is missing: nothing after it could be trusted
	again := dial(t, p.Addr())
	again.say("b")
	again.hear("got b")
}

func TestCutClosesWhatIsOpenAndNothingElse(t *testing.T) {
	addr, _ := echo(t)
	p := NewProxy(t, addr)
	w := dial(t, p.Addr())
	w.say("a")
	w.hear("got a")
	p.Cut()
	w.over()
	again := dial(t, p.Addr())
	again.say("b")
	again.hear("got b")
}

func TestRefusingProxyCutsAndRefusesUntilItPasses(t *testing.T) {
	addr, _ := echo(t)
	p := NewProxy(t, addr)
	w := dial(t, p.Addr())
	w.say("a")
	w.hear("got a")
	p.Set(Refuse)
	w.over()
	refused(t, p.Addr())
	p.Set(Pass)
	again := dial(t, p.Addr())
	again.say("b")
	again.hear("got b")
}

func TestProxyOfAServerThatIsDownClosesConnections(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dial(t, NewProxy(t, "127.0.0.1:"+port).Addr()).over()
}
