package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"quorate/internal/testenv"
	"quorate/redlock"
)

// soon is how long a test waits for what must come to pass. It is long, for a machine
// under load, and short beside the TTL of a minute that would bring it about anyway.
const soon = 15 * time.Second

// A network is masters with a proxy before each.
type network struct {
	masters []*testenv.Redis
	proxies []*testenv.Proxy
}

func newNetwork(t *testing.T, n int) network {
	t.Helper()
	net := network{masters: testenv.Masters(t, n)}
	for _, m := range net.masters {
		net.proxies = append(net.proxies, testenv.NewProxy(t, m.Addr()))
	}
	return net
}

// through are the addresses of the proxies; urlsOf(net.masters) those past them.
func (net network) through() []string {
	urls := make([]string, len(net.proxies))
	for i, p := range net.proxies {
		urls[i] = "redis://" + p.Addr()
	}
	return urls
}

func setAll(mode testenv.Mode, proxies ...*testenv.Proxy) {
	for _, p := range proxies {
		p.Set(mode)
	}
}

// warm returns a locker that has a connection to each master.
func warm(t *testing.T, opts redlock.Options, urls []string) *redlock.Locker {
	t.Helper()
	l := newLocker(t, opts, urls)
	if _, err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// operator is a connection to a master that is not a locker's.
func operator(t *testing.T, m *testenv.Redis) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(m.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func operators(t *testing.T, masters []*testenv.Redis) []*redis.Client {
	t.Helper()
	all := make([]*redis.Client, len(masters))
	for i, m := range masters {
		all[i] = operator(t, m)
	}
	return all
}

// order has a server do something.
func order(t *testing.T, server *redis.Client, words ...any) any {
	t.Helper()
	answer, err := server.Do(t.Context(), words...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v: %v", words, err)
	}
	return answer
}

// holders counts the servers that have the key.
func holders(t *testing.T, servers []*redis.Client, key string) int {
	t.Helper()
	n := 0
	for _, s := range servers {
		there, err := s.Exists(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		n += int(there)
	}
	return n
}

// wantGone fails the test if one of the servers keeps the key.
func wantGone(t *testing.T, servers []*redis.Client, key string) {
	t.Helper()
	eventually(t, "key "+key+" is gone", func() bool { return holders(t, servers, key) == 0 })
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after %s: %s", soon, what)
		}
	}
}

func acquire(t *testing.T, l *redlock.Locker, key string, ttl time.Duration) *redlock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key, ttl, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// wantEnded waits for the end of a kept lease, and for the reason.
func wantEnded(t *testing.T, held context.Context) {
	t.Helper()
	select {
	case <-held.Done():
	case <-time.After(soon):
		t.Fatal("the lease's context has not ended")
	}
	if why := context.Cause(held); !errors.Is(why, redlock.ErrLost) {
		t.Errorf("it ended because of %v, want ErrLost", why)
	}
}
