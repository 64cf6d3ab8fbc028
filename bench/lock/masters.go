//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// startLimit is how long a server may take to answer after its start.
const startLimit = 10 * time.Second

// A master is one redis-server process of ours, and a client to look at it.
type master struct {
	addr  string
	dir   string
	admin *redis.Client
	proc  *exec.Cmd
}

func startMasters(n int) ([]*master, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("%w: install Redis 7.0 or newer", err)
	}
	var all []*master
	for range n {
		m, err := newMaster()
		if err != nil {
			stopMasters(all)
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func newMaster() (*master, error) {
	dir, err := os.MkdirTemp("", "quorate-bench-")
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	m := &master{addr: addr, dir: dir, admin: redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})}
	if err := m.start(); err != nil {
		m.stop()
		return nil, err
	}
	return m, nil
}

// freeAddr is an address nobody listens at; another process may yet take it.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start runs the server and returns when it answers.
func (m *master) start() error {
	_, port, err := net.SplitHostPort(m.addr)
	if err != nil {
		return err
	}
	m.proc = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", m.dir,
		"--save", "", "--appendonly", "no", "--logfile", filepath.Join(m.dir, "log"))
	m.proc.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C is for us to handle, not for it
	if err := m.proc.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(startLimit); ; time.Sleep(2 * time.Millisecond) {
		err := m.admin.Ping(context.Background()).Err()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			return fmt.Errorf("redis-server at %s does not answer: %w\n%s", m.addr, err, log)
		}
	}
}

func (m *master) signal(s syscall.Signal) error { return m.proc.Process.Signal(s) }

// kill ends the process; connecting to the address is refused from then on.
func (m *master) kill() error {
	if err := m.signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = m.proc.Wait() // says that it was killed
	return nil
}

func (m *master) stop() {
	if m.proc != nil && m.proc.Process != nil {
		_ = m.kill() // it may have ended by itself
	}
	_ = m.admin.Close()
	_ = os.RemoveAll(m.dir)
}

// stopMasters stops them all.
func stopMasters(all []*master) {
	for _, m := range all {
		m.stop()
	}
}

// version is what the server says of itself.
func (m *master) version() string {
	info, _ := m.admin.Info(context.Background(), "server").Result()
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			return v
		}
	}
	return "unknown"
}

// keys counts what is stored on all masters together.
func keys(masters []*master) (int, error) {
	var n int64
	for _, m := range masters {
		size, err := m.admin.DBSize(context.Background()).Result()
		if err != nil {
			return 0, fmt.Errorf("count keys at %s: %w", m.addr, err)
		}
		n += size
	}
	return int(n), nil
}

// empty cuts all connections but ours, so that nothing that was sent is still to
// come, and removes every key.
func empty(masters []*master) error {
	for _, m := range masters {
		if err := m.admin.ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			return fmt.Errorf("cut connections of %s: %w", m.addr, err)
		}
		if err := m.admin.FlushAll(context.Background()).Err(); err != nil {
			return fmt.Errorf("empty %s: %w", m.addr, err)
		}
	}
	return nil
}

// occupy gives the key to somebody else, everywhere.
func occupy(masters []*master, key string) error {
	for _, m := range masters {
		if err := m.admin.Set(context.Background(), key, "somebody else", time.Hour).Err(); err != nil {
			return fmt.Errorf("occupy %q at %s: %w", key, m.addr, err)
		}
	}
	return nil
}

// A fault is what may befall one master.
type fault string

// The faults.
const (
	none    fault = ""
	refuses fault = "refuses" // its process is gone
	hangs   fault = "hangs"   // its process is stopped; the kernel still accepts
	slow    fault = "slow"    // its answers come late
)

// lateness is how late a slow master answers.
const lateness = 20 * time.Millisecond

// A broken master is one that a fault is prepared for: addr is where clients must
// go, begin breaks it, and end mends it, also if it never began.
type broken struct {
	addr  string
	begin func() error
	end   func() error
}

func (m *master) prepare(f fault) (broken, error) {
	nothing := func() error { return nil }
	switch f {
	case refuses:
		return broken{m.addr, m.kill, func() error {
			if m.proc.ProcessState == nil {
				return nil // still runs
			}
			return m.start()
		}}, nil
	case hangs:
		return broken{m.addr,
			func() error { return m.signal(syscall.SIGSTOP) },
			func() error { return m.signal(syscall.SIGCONT) }}, nil
	case slow:
		p, err := newProxy(m.addr)
		if err != nil {
			return broken{}, err
		}
		return broken{p.addr(), func() error { p.delay(lateness); return nil }, p.close}, nil
	}
	return broken{m.addr, nothing, nothing}, nil
}
