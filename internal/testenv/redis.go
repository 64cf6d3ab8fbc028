package testenv

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Redis is one master: a server of its own that shares nothing with the others
// and persists nothing. Its methods are for the goroutine of the test.
//
// Masters that were given by QUORATE_TEST_REDIS are not ours to stop: a test that
// tries ends as one whose server is missing. They are shared by all tests, too, so
// keys should be a test's own.
type Redis struct {
	t    testing.TB
	url  string
	addr string
	body body
}

// A body is what runs a master: a process or a container.
type body interface {
	freeze() error // returns when it has stopped
	thaw() error
	kill() error // returns when it is gone
	start() error
}

// Masters lends n independent masters until the test ends.
func Masters(t testing.TB, n int) []*Redis {
	t.Helper()
	if given := os.Getenv(envRedis); given != "" {
		return givenMasters(t, strings.Split(given, ","), n)
	}
	masters := make([]*Redis, n)
	failed := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { masters[i], failed[i] = newMaster(t) })
	}
	wait.Wait()
	t.Cleanup(func() {
		for _, m := range masters {
			if m != nil {
				m.body.kill()
			}
		}
	})
	if err := errors.Join(failed...); err != nil {
		without(t, "redis", err)
	}
	return masters
}

// Addr is host:port.
func (r *Redis) Addr() string { return r.addr }

// URL is redis://host:port/0.
func (r *Redis) URL() string { return r.url }

// Stop freezes the master: it keeps its connections, and even accepts new ones,
// but answers nothing until Cont.
func (r *Redis) Stop() {
	r.t.Helper()
	r.do("stop", body.freeze)
}

// Cont lets a stopped master go on, beginning with what was sent to it meanwhile.
func (r *Redis) Cont() {
	r.t.Helper()
	r.do("continue", body.thaw)
}

// Kill ends the master at once, with all that it knew. Connections to it are
// refused until Start.
func (r *Redis) Kill() {
	r.t.Helper()
	r.do("kill", body.kill)
}

// Start starts a killed master again: empty, under a new run_id, at the same
// address.
func (r *Redis) Start() {
	r.t.Helper()
	r.do("start", body.start)
}

func (r *Redis) do(what string, act func(body) error) {
	r.t.Helper()
	if r.body == nil {
		without(r.t, "redis", fmt.Errorf("this test has to %s a master, and those of %s are not ours: unset it to have them started", what, envRedis))
	}
	if err := act(r.body); err != nil {
		r.t.Fatalf("%s master %s: %v", what, r.addr, err)
	}
}

func givenMasters(t testing.TB, urls []string, n int) []*Redis {
	t.Helper()
	if len(urls) < n {
		t.Fatalf("%s names %d masters, this test needs %d", envRedis, len(urls), n)
	}
	masters := make([]*Redis, n)
	for i := range masters {
		at, err := url.Parse(strings.TrimSpace(urls[i]))
		if err != nil || at.Host == "" {
			// The error would quote the URL, which may hold a password.
			t.Fatalf("%s: URL %d cannot be read; write redis://host:port", envRedis, i+1)
		}
		addr := at.Host
		if at.Port() == "" {
			addr = net.JoinHostPort(at.Hostname(), "6379")
		}
		conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			t.Fatalf("%s: master %d: %v", envRedis, i+1, err)
		}
		conn.Close()
		masters[i] = &Redis{t: t, url: at.String(), addr: addr}
	}
	return masters
}

func newMaster(t testing.TB) (*Redis, error) {
	bin, err := find("redis-server")
	if err != nil {
		d, failed := redisContainer(t)
		if failed != nil {
			return nil, errors.Join(err, failed)
		}
		return &Redis{t: t, url: "redis://" + d.addr + "/0", addr: d.addr, body: d}, nil
	}
	p, err := tries(func() (*redisProcess, error) {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		p := &redisProcess{bin: bin, port: port}
		return p, p.start()
	})
	if err != nil {
		return nil, err
	}
	addr := "127.0.0.1:" + p.port
	return &Redis{t: t, url: "redis://" + addr + "/0", addr: addr, body: p}, nil
}

// A redisProcess is a master that is a child of ours.
type redisProcess struct {
	*process // of its present life
	bin      string
	port     string
}

func (p *redisProcess) start() error {
	if p.process != nil && !p.exited() {
		return errors.New("it runs already")
	}
	h, err := newHome("redis")
	if err != nil {
		return err
	}
	p.process, err = h.start("KILL", nil, p.bin,
		"--bind", "127.0.0.1", "--port", p.port, "--dir", h.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	if err != nil {
		h.leave()
		return err
	}
	// Not any Redis at this port will do: ours.
	ours := fmt.Sprintf("\r\nprocess_id:%d\r\n", p.pid())
	return p.ready(func() error {
		info, err := redisInfo("127.0.0.1:" + p.port)
		if err == nil && !strings.Contains(info, ours) {
			err = errors.New("another server has its port")
		}
		return err
	})
}

// redisInfo asks a server who it is.
func redisInfo(addr string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "INFO server\r\nQUIT\r\n"); err != nil {
		return "", err
	}
	info, err := io.ReadAll(conn) // QUIT ends it
	return string(info), err
}
