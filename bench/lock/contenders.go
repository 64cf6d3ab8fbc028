//go:build unix

package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"quorate/redlock"
)

// ttl is what every lock asks for: the default of redsync.
const ttl = 8 * time.Second

// A contender is a lock library in one configuration.
type contender struct {
	name string
	open func(addrs []string) (client, error)
}

// A client is a contender connected to its masters.
type client interface {
	// try makes one attempt to lock the key.
	try(ctx context.Context, key string) (held, error)
	// wait tries until the key is locked or ctx ends, as the library does by itself.
	wait(ctx context.Context, key string) (held, error)
	// taken reports whether try failed because somebody else has the key.
	taken(err error) bool
	close()
}

// What is held can be released, once.
type held interface{ Release() error }

var (
	quorate  = contender{"quorate", openQuorate}
	peer     = contender{"redsync", openRedsync()}
	failFast = contender{"redsync, fail-fast", openRedsync(redsync.WithFailFast(true))}
)

type quorateClient struct{ *redlock.Locker }

func openQuorate(addrs []string) (client, error) {
	urls := make([]string, len(addrs))
	for i, addr := range addrs {
		urls[i] = "redis://" + addr
	}
	// The servers were started a moment ago, for this; nobody has locks on them.
	l, err := redlock.New(redlock.Options{RestartGuard: -1, MaxTTL: ttl}, urls...)
	return quorateClient{l}, err
}

func (c quorateClient) try(ctx context.Context, key string) (held, error) {
	lease, err := c.Acquire(ctx, key, ttl, "")
	if err != nil {
		return nil, err // not a nil *Lease in an interface
	}
	return lease, nil
}

func (c quorateClient) wait(ctx context.Context, key string) (held, error) {
	lease, err := c.Wait(ctx, key, ttl, "")
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (c quorateClient) taken(err error) bool { return errors.Is(err, redlock.ErrTaken) }
func (c quorateClient) close()               { c.Close() }

type redsyncClient struct {
	sync    *redsync.Redsync
	options []redsync.Option
	once    redsync.Option
	clients []*redis.Client
}

// openRedsync is redsync as its README sets it up: a go-redis client with its
// defaults for each master, and a Mutex with its defaults, but one try for an attempt.
func openRedsync(more ...redsync.Option) func(addrs []string) (client, error) {
	return func(addrs []string) (client, error) {
		c := &redsyncClient{options: more, once: redsync.WithTries(1)}
		var pools []redsyncpool.Pool
		for _, addr := range addrs {
			master := redis.NewClient(&redis.Options{Addr: addr})
			c.clients = append(c.clients, master)
			pools = append(pools, goredis.NewPool(master))
		}
		c.sync = redsync.New(pools...)
		return c, nil
	}
}

func (c *redsyncClient) try(ctx context.Context, key string) (held, error) {
	return lock(ctx, c.sync.NewMutex(key, append(slices.Clip(c.options), c.once)...))
}

// wait has redsync try as often as it does by default, and then again.
func (c *redsyncClient) wait(ctx context.Context, key string) (held, error) {
	for {
		got, err := lock(ctx, c.sync.NewMutex(key, c.options...))
		if err == nil || ctx.Err() != nil || !c.taken(err) {
			return got, err
		}
	}
}

func lock(ctx context.Context, m *redsync.Mutex) (held, error) {
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return mutex{m}, nil
}

type mutex struct{ *redsync.Mutex }

func (m mutex) Release() error {
	_, err := m.Unlock()
	return err
}

func (c *redsyncClient) taken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)
}

func (c *redsyncClient) close() {
	for _, master := range c.clients {
		_ = master.Close()
	}
}
