package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// A wire is one connection to a server that answers a line with a line.
type wire struct {
	t testing.TB
	net.Conn
	answers *bufio.Reader
}

func dial(t testing.TB, addr string) wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return wire{t, conn, bufio.NewReader(conn)}
}

func (w wire) say(line string) {
	w.t.Helper()
	if _, err := fmt.Fprintf(w, "%s\r\n", line); err != nil {
		w.t.Fatalf("say %s: %v", line, err)
	}
}

// hear fails the test unless the next line is the answer.
func (w wire) hear(want string) {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(10 * time.Second))
	got, err := w.answers.ReadString('\n')
	if err != nil || strings.TrimSpace(got) != want {
		w.t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// silent fails the test if anything comes within a moment.
func (w wire) silent() {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if got, err := w.answers.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("heard %q, %v; want silence", got, err)
	}
}

// over fails the test unless the connection is closed.
func (w wire) over() {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := w.answers.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("heard %q, %v; want a closed connection", got, err)
	}
}

func refused(t testing.TB, addr string) {
	t.Helper()
	if len(alive([]string{addr})) != 0 {
		t.Fatalf("%s accepts connections, want it to refuse them", addr)
	}
}

func TestMastersShareNothing(t *testing.T) {
	masters := Masters(t, 5)
	first := dial(t, masters[0].Addr())
	first.say("SET k v")
	first.hear("+OK")
	for _, m := range masters[1:] {
		other := dial(t, m.Addr())
		other.say("EXISTS k")
		other.hear(":0")
	}
}

func TestStoppedMasterIsSilentUntilCont(t *testing.T) {
	m := Masters(t, 1)[0]
	before := dial(t, m.Addr())
	before.say("PING")
	before.hear("+PONG")
	m.Stop()
	before.say("SET k v")
	during := dial(t, m.Addr())
	during.say("EXISTS k")
	before.silent()
	during.silent()
	m.Cont()
	before.hear("+OK")
	during.hear(":1")
}

func TestKilledMasterRefusesAndStartsEmptyAtItsAddress(t *testing.T) {
	m := Masters(t, 1)[0]
	addr, life := m.Addr(), runID(t, m)
	before := dial(t, addr)
	before.say("SET k v")
	before.hear("+OK")
	m.Kill()
	refused(t, addr)
	before.over()
	m.Start()
	if m.Addr() != addr || runID(t, m) == life {
		t.Errorf("started at %s with run_id %s, want %s and another run_id", m.Addr(), runID(t, m), addr)
	}
	after := dial(t, addr)
	after.say("EXISTS k")
	after.hear(":0")
}

func TestStoppedMasterCanBeKilled(t *testing.T) {
	m := Masters(t, 1)[0]
	m.Stop()
	m.Kill()
	refused(t, m.Addr())
	m.Start()
	m.Kill()
	m.Kill()
}

func runID(t testing.TB, m *Redis) string {
	t.Helper()
	info, err := redisInfo(m.Addr())
	_, id, ok := strings.Cut(info, "run_id:")
	if err != nil || !ok {
		t.Fatalf("INFO: %q, %v", info, err)
	}
	id, _, _ = strings.Cut(id, "\r\n")
	return id
}
