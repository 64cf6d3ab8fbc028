package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
)

// A server is where databases are made, one for each test.
type server struct {
	url  *url.URL // with a user who may
	body any      // what runs it; held here, so that it runs as long as this binary
}

// oneOf returns the server that the first can start, or else the second.
func oneOf(first, second func() (server, error)) (server, error) {
	s, err1 := first()
	if err1 == nil {
		return s, nil
	}
	s, err2 := second()
	if err2 == nil {
		return s, nil
	}
	return server{}, errors.Join(err1, err2)
}

// lend makes a database, has it dropped when the test ends, and returns its URL.
func (s server) lend(t testing.TB, exec func(u *url.URL, sql string) error, drop string) string {
	t.Helper()
	name := fmt.Sprintf("quorate_test_%012x", rand.Int64N(1<<48))
	if err := exec(s.url, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := exec(s.url, fmt.Sprintf(drop, name)); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	u := *s.url
	u.Path = "/" + name
	return u.String()
}

// given reads the address that somebody gave in env. What is wrong with it is
// said without quoting it: it holds a password.
func given(t testing.TB, env, address string) server {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		t.Fatalf("%s cannot be read; write scheme://user:password@host:port/database", env)
	}
	return server{url: u}
}
