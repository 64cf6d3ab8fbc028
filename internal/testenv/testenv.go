// Package testenv lends tests real servers: independent Redis masters, a fresh
// Postgres database, a fresh MariaDB database, and a proxy to break the network
// between a test and any of them.
//
// What a test asks for comes from the first of these that can serve it:
//
//  1. the address in QUORATE_TEST_REDIS (comma separated redis:// URLs),
//     QUORATE_TEST_POSTGRES (a postgres:// URL whose user may create databases)
//     or QUORATE_TEST_MARIADB (a mysql:// URL, likewise);
//  2. server binaries on this machine: PATH, pg_config, and the folders where
//     Debian, Fedora and Homebrew put them. Root and ordinary users both work;
//  3. containers, where a Docker daemon answers. Where the daemon cannot pull
//     testcontainers/ryuk, set TESTCONTAINERS_RYUK_DISABLED=true.
//
// Where none can, the test skips and says why; it fails instead where
// QUORATE_TEST_REQUIRE=1, which is how make test runs. An address that is given
// and does not answer always fails.
//
// Promised: what is lent is a test's own and ends with it; a server that was
// started here listens on loopback alone, and is gone with its data when the test
// binary is, even one that was killed; no goroutine outlives a call. Not promised:
// durability. Every server here trades it for speed.
//
// What may live here: getting servers, and breaking them from the outside. What
// may not: knowledge of our own rooms. Only test files may import this package.
package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	envRedis    = "QUORATE_TEST_REDIS"
	envPostgres = "QUORATE_TEST_POSTGRES"
	envMariaDB  = "QUORATE_TEST_MARIADB"
	envRequire  = "QUORATE_TEST_REQUIRE"

	startLimit = 60 * time.Second // for a server to answer, on a machine under load
)

// without ends a test that cannot have its server: skipped, or failed where
// servers are required.
func without(t testing.TB, what string, err error) {
	t.Helper()
	reason := strings.ReplaceAll(err.Error(), "\n", "; ")
	if os.Getenv(envRequire) == "1" {
		t.Fatalf("no %s to test with (%s=1 says there must be): %s", what, envRequire, reason)
	}
	t.Skipf("no %s to test with: %s", what, reason)
}

// folders where servers live that are often not in PATH, newest version last.
var folders = []string{
	"/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/bin",
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
	"/usr/local/opt/*/bin", "/opt/homebrew/bin", "/opt/homebrew/opt/*/bin",
}

// find returns the path of a server binary.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, folder := range slices.Backward(folders) {
		found, _ := filepath.Glob(filepath.Join(folder, name)) // fails on bad patterns alone
		for _, path := range slices.Backward(found) {
			if path, err := exec.LookPath(path); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// listen opens a loopback port that stays ours by custom after it was closed:
// below the ports that systems hand out by themselves, so that no outgoing
// connection sits on it while a server of a test is down.
func listen() (net.Listener, error) {
	var failed error
	for range 50 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(22000)))
		if err == nil {
			return l, nil
		}
		failed = err
	}
	return nil, fmt.Errorf("no free loopback port: %w", failed)
}

// freePort returns the number of such a port.
func freePort() (string, error) {
	l, err := listen()
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// answers asks until the server answers, has ended, or the limit has passed.
func answers(ask func() error, ended func() bool) error {
	err := ask()
	for begun := time.Now(); err != nil && !ended() && time.Since(begun) < startLimit; err = ask() {
		time.Sleep(2 * time.Millisecond)
	}
	return err
}

// tries repeats a start that may lose the race for its port.
func tries[T any](start func() (T, error)) (started T, err error) {
	for range 3 {
		if started, err = start(); err == nil {
			break
		}
	}
	return started, err
}
