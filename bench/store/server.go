//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// A server is a Postgres of ours that keeps what it acknowledges: fsync and
// synchronous_commit are on.
type server struct {
	url  *url.URL
	dir  string
	proc *exec.Cmd
}

// startLimit is how long a server may take to answer after its start.
const startLimit = 30 * time.Second

func startServer(ctx context.Context) (s *server, err error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := owner()
	if err != nil {
		return nil, err
	}
	s = &server{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "quorate-bench-"); err != nil {
		return nil, err
	}
	if as != nil {
		err = errors.Join(os.Chown(s.dir, int(as.Uid), int(as.Gid)), os.Chmod(s.dir, 0o755))
	}
	port, portErr := freePort()
	if err = errors.Join(err, portErr); err != nil {
		return nil, err
	}
	s.url = &url.URL{Scheme: "postgres", User: url.UserPassword("postgres", rand.Text()),
		Host: "127.0.0.1:" + port, Path: "/postgres", RawQuery: "sslmode=disable"}
	if err = s.initdb(as, bin); err != nil {
		return nil, err
	}
	s.proc = s.command(as, filepath.Join(bin, "postgres"), "-D", s.data(), "-k", "", "-p", port,
		"-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=512MB", "-c", "max_wal_size=4GB",
		"-c", "logging_collector=off", "-c", "log_min_messages=fatal")
	if err = s.proc.Start(); err != nil {
		return nil, err
	}
	return s, s.await(ctx)
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) command(as *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true} // ^C is for us to handle, not for it
	return cmd
}

func (s *server) initdb(as *syscall.Credential, bin string) error {
	secret, _ := s.url.User.Password()
	file := filepath.Join(s.dir, "password")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o644); err != nil {
		return err
	}
	out, err := s.command(as, filepath.Join(bin, "initdb"), "-D", s.data(), "-U", s.url.User.Username(),
		"--pwfile", file, "-A", "password", "-E", "UTF8", "--locale=C", "--no-instructions").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (s *server) await(ctx context.Context) error {
	for deadline := time.Now().Add(startLimit); ; time.Sleep(5 * time.Millisecond) {
		conn, err := pgx.Connect(ctx, s.url.String())
		if err == nil {
			return conn.Close(ctx)
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("postgres at %s does not answer: %w", s.url.Host, err)
		}
	}
}

func (s *server) stop() {
	if s.proc != nil && s.proc.Process != nil {
		_ = s.proc.Process.Signal(syscall.SIGQUIT)
		_ = s.proc.Wait() // says that it was stopped
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// binaries returns the folder of the server's binaries, which few systems have in
// PATH.
func binaries() (string, error) {
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		bin := strings.TrimSpace(string(out))
		if _, err := exec.LookPath(filepath.Join(bin, "initdb")); err == nil {
			return bin, nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // fails on bad patterns alone
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("no Postgres server: %w", err)
	}
	return filepath.Dir(path), nil
}

// owner is whom to run a server as that refuses root; nil where we are not root.
func owner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uidErr, gidErr)
	}
	return nil, errors.New("postgres refuses to run as root, and there is no user postgres or nobody")
}

// freePort is one nobody listens at; another process may yet take it.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}
