//go:build unix

package interop

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"quorate/redlock"
)

// start starts n masters, which end with the test.
func start(t *testing.T, n int) []*redis.Client {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	switch {
	case err != nil && os.Getenv("QUORATE_TEST_REQUIRE") == "1":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	masters := make([]*redis.Client, n)
	for i := range masters {
		masters[i] = startOne(t, bin)
	}
	return masters
}

func startOne(t *testing.T, bin string) *redis.Client {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().(*net.TCPAddr)
	_ = free.Close()
	cmd := exec.Command(bin, "--bind", "127.0.0.1", "--port", strconv.Itoa(addr.Port),
		"--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: addr.String()})
	t.Cleanup(func() {
		_ = c.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(time.Minute); c.Ping(t.Context()).Err() != nil; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("redis-server at %s does not answer", addr)
		}
	}
	return c
}

// quorate is us.
type quorate struct{ *redlock.Locker }

func newQuorate(t *testing.T, masters []*redis.Client) quorate {
	t.Helper()
	urls := make([]string, len(masters))
	for i, m := range masters {
		urls[i] = "redis://" + m.Options().Addr
	}
	// The masters were started for this test: they have forgotten nothing.
	l, err := redlock.New(redlock.Options{RestartGuard: -1, MasterTimeout: 5 * time.Second}, urls...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if _, err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return quorate{l}
}

func (q quorate) try(key string) (held, error) {
	lease, err := q.Acquire(context.Background(), key, ttl, "")
	return quorateHeld{lease}, err
}

func (q quorate) taken(err error) bool {
	return errors.Is(err, redlock.ErrTaken) && !errors.Is(err, redlock.ErrNoQuorum)
}

type quorateHeld struct{ *redlock.Lease }

func (h quorateHeld) value() string  { return "" } // nobody asks us
func (h quorateHeld) extend() error  { return h.Extend(context.Background()) }
func (h quorateHeld) release() error { return h.Release() }

// rsync is redsync as its README sets it up, with one try.
type rsync struct {
	*redsync.Redsync
	options []redsync.Option
}

var failFast = redsync.WithFailFast(true)

func newRedsync(masters []*redis.Client, options ...redsync.Option) rsync {
	var pools []redsyncpool.Pool
	for _, m := range masters {
		pools = append(pools, goredis.NewPool(m))
	}
	return rsync{redsync.New(pools...), append(options, redsync.WithTries(1), redsync.WithExpiry(ttl))}
}

func (r rsync) try(key string) (held, error) {
	m := r.NewMutex(key, r.options...)
	return rsyncHeld{m}, m.Lock()
}

func (r rsync) taken(err error) bool {
	var some *redsync.ErrNodeTaken
	var most *redsync.ErrTaken
	return errors.As(err, &some) || errors.As(err, &most)
}

type rsyncHeld struct{ *redsync.Mutex }

func (h rsyncHeld) value() string  { return h.Value() }
func (h rsyncHeld) extend() error  { return yes(h.Extend()) }
func (h rsyncHeld) release() error { return yes(h.Unlock()) }

func yes(ok bool, err error) error {
	if !ok {
		return errors.Join(errors.New("refused"), err)
	}
	return nil
}

// plain asks one master after the other for SET NX PX, and gives back what it got when
// that is no majority. There are two ways to compare a value before it is deleted.
type plain struct {
	masters []*redis.Client
	ifMine  func(m *redis.Client, key, mine string, do ...any) (bool, error)
}

var errTaken = errors.New("too many masters said no")

func (p plain) try(key string) (held, error) {
	h := plainHeld{p, key, strconv.FormatUint(rand.Uint64(), 16)}
	got := 0
	for _, m := range p.masters {
		ok, err := m.SetNX(context.Background(), key, h.mine, ttl).Result()
		if err != nil {
			return nil, err
		}
		if ok {
			got++
		}
	}
	if got > len(p.masters)/2 {
		return h, nil
	}
	_, err := h.each("DEL", key)
	return nil, errors.Join(errTaken, err)
}

func (p plain) taken(err error) bool { return errors.Is(err, errTaken) }

type plainHeld struct {
	plain
	key, mine string
}

func (h plainHeld) value() string  { return h.mine }
func (h plainHeld) extend() error  { return h.majority("PEXPIRE", h.key, ttl.Milliseconds()) }
func (h plainHeld) release() error { return h.majority("DEL", h.key) }

func (h plainHeld) majority(do ...any) error {
	n, err := h.each(do...)
	return errors.Join(yes(n > len(h.masters)/2, nil), err)
}

func (h plainHeld) each(do ...any) (done int, failed error) {
	for _, m := range h.masters {
		ok, err := h.ifMine(m, h.key, h.mine, do...)
		failed = errors.Join(failed, err)
		if ok {
			done++
		}
	}
	return done, failed
}

// script has the server compare.
func script(m *redis.Client, key, mine string, do ...any) (bool, error) {
	n, err := m.Eval(context.Background(),
		`if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
		 return redis.call(unpack(ARGV, 2))`, []string{key}, append([]any{mine}, do...)...).Int()
	return n == 1, err
}

// transaction compares here, and does nothing if the key has changed meanwhile.
func transaction(m *redis.Client, key, mine string, do ...any) (done bool, err error) {
	err = m.Watch(context.Background(), func(tx *redis.Tx) error {
		v, err := tx.Get(context.Background(), key).Result()
		if errors.Is(err, redis.Nil) || err == nil && v != mine {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(context.Background(), func(p redis.Pipeliner) error {
			return p.Do(context.Background(), do...).Err()
		})
		done = err == nil
		return err
	}, key)
	return done, err
}
