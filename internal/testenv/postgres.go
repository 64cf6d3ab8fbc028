package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The one server of this test binary. It is package state because it has to be
// shared by tests that know nothing of each other, and is started by the first
// that asks: a server of its own would cost each test 0.6 s, a database costs
// 30 ms. Nobody stops it; its keeper does when the binary ends.
var postgres = sync.OnceValues(startPostgres)

// Postgres lends a fresh database until the test ends, and returns its URL.
// Whoever is still connected to it at the end is thrown out.
func Postgres(t testing.TB) string {
	t.Helper()
	if address := os.Getenv(envPostgres); address != "" {
		return given(t, envPostgres, address).lend(t, postgresExec, "DROP DATABASE %s WITH (FORCE)")
	}
	s, err := postgres()
	if err != nil {
		without(t, "postgres", err)
	}
	return s.lend(t, postgresExec, "DROP DATABASE %s WITH (FORCE)")
}

func startPostgres() (server, error) {
	return oneOf(func() (server, error) {
		bin, err := postgresBin()
		if err != nil {
			return server{}, err
		}
		return tries(func() (server, error) { return postgresProcess(bin) })
	}, postgresContainer)
}

// postgresBin returns the folder of the server's binaries, which is in PATH on
// few systems.
func postgresBin() (string, error) {
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		bin := strings.TrimSpace(string(out))
		// pg_config comes with the client library too.
		if _, err := exec.LookPath(filepath.Join(bin, "initdb")); err == nil {
			return bin, nil
		}
	}
	initdb, err := find("initdb")
	return filepath.Dir(initdb), err
}

func postgresProcess(bin string) (s server, err error) {
	port, err := freePort()
	if err != nil {
		return s, err
	}
	h, err := newHome("postgres")
	if err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			h.leave()
		}
	}()
	s.url = postgresURL("127.0.0.1:" + port)
	as, err := h.owner("postgres", "nobody")
	if err == nil {
		err = initdb(h, as, bin, s.url.User)
	}
	if err != nil {
		return s, err
	}
	p, err := h.start("QUIT", as, filepath.Join(bin, "postgres"), "-D", filepath.Join(h.dir, "data"),
		"-k", "", "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200",
		"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
		"-c", "shared_buffers=32MB")
	if err != nil {
		return s, err
	}
	s.body = p
	return s, p.ready(func() error { return postgresIn(s.url, h.dir) })
}

func initdb(h *home, as *credential, bin string, u *url.Userinfo) error {
	secret, _ := u.Password()
	file := filepath.Join(h.dir, "password")
	// The folder is closed to others; the file is for another user to read.
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o644); err != nil {
		return err
	}
	return h.run(as, filepath.Join(bin, "initdb"), "-D", filepath.Join(h.dir, "data"), "-U", u.Username(),
		"--pwfile", file, "-A", "password", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
}

// postgresURL returns where and as whom a server of ours is reached: with a
// password that nobody else on this machine knows.
func postgresURL(addr string) *url.URL {
	return &url.URL{Scheme: "postgres", User: url.UserPassword("postgres", rand.Text()),
		Host: addr, Path: "/postgres", RawQuery: "sslmode=disable"}
}

// postgresIn asks the server whether it is the one with its data in dir.
func postgresIn(u *url.URL, dir string) error {
	return postgresDo(u, func(ctx context.Context, conn *pgx.Conn) error {
		var data string
		err := conn.QueryRow(ctx, `SHOW data_directory`).Scan(&data)
		if err == nil && data != filepath.Join(dir, "data") {
			err = errors.New("another server has its port")
		}
		return err
	})
}

func postgresExec(u *url.URL, sql string) error {
	return postgresDo(u, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

func postgresDo(u *url.URL, do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return do(ctx, conn)
}
