package testenv

import (
	"context"
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

// A server is where databases are made: its URL, with a user who may.
type server struct {
	url  *url.URL
	body any // what runs it; held so that it lives as long as this binary
}

// The one server of this test binary. It is package state because it has to be
// shared by tests that know nothing of each other, and is started by the first
// that asks: a server of its own would cost each test 0.6 s, a database costs
// 30 ms. Nobody stops it; its keeper does when the binary ends.
var postgres = sync.OnceValues(startPostgres)

// Postgres lends a fresh database until the test ends, and returns its URL.
// Whoever is still connected to it at the end is thrown out.
func Postgres(t testing.TB) string {
	t.Helper()
	var s server
	var err error
	if given := os.Getenv(envPostgres); given != "" {
		s.url = givenURL(t, envPostgres, given)
	} else if s, err = postgres(); err != nil {
		without(t, "postgres", err)
	}
	name := database()
	err = postgresExec(s.url, `CREATE DATABASE `+name)
	if err != nil {
		t.Fatalf("create a database: %v", err)
	}
	t.Cleanup(func() {
		if err := postgresExec(s.url, `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return s.database(name)
}

// database returns the URL of one database of the server.
func (s server) database(name string) string {
	u := *s.url
	u.Path = "/" + name
	return u.String()
}

// givenURL reads an address that somebody gave. What is wrong with it is said
// without quoting it: it holds a password.
func givenURL(t testing.TB, env, given string) *url.URL {
	t.Helper()
	u, err := url.Parse(given)
	if err != nil || u.Host == "" {
		t.Fatalf("%s cannot be read; write scheme://user:password@host:port/database", env)
	}
	return u
}

func startPostgres() (server, error) {
	bin, err := postgresBin()
	if err == nil {
		var s server
		err = tries(func() error {
			s, err = postgresProcess(bin)
			return err
		})
		if err == nil {
			return s, nil
		}
	}
	s, failed := postgresContainer()
	if failed != nil {
		return server{}, errors.Join(err, failed)
	}
	return s, nil
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

func postgresProcess(bin string) (server, error) {
	port, err := freePort()
	if err != nil {
		return server{}, err
	}
	dir, err := os.MkdirTemp("", "quorate-postgres-")
	if err != nil {
		return server{}, err
	}
	as, err := unprivileged(dir, "postgres", "nobody")
	if err == nil {
		err = run(dir, as, filepath.Join(bin, "initdb"), "-D", filepath.Join(dir, "data"), "-U", "postgres",
			"-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	}
	if err != nil {
		return server{}, errors.Join(err, os.RemoveAll(dir))
	}
	p, err := start(dir, "QUIT", as, filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"),
		"-k", "", "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200",
		"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
		"-c", "shared_buffers=32MB")
	if err != nil {
		return server{}, errors.Join(err, os.RemoveAll(dir))
	}
	s := server{body: p, url: &url.URL{Scheme: "postgres", User: url.User("postgres"),
		Host: "127.0.0.1:" + port, Path: "/postgres", RawQuery: "sslmode=disable"}}
	return s, p.ready(func() error { return postgresIn(s.url, dir) })
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
