package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A client that keeps a lease is cut off from a majority of masters, or from more of
// them, at any point of its extensions. Another one asks for the lock all the time.
func TestTheContextOfKeepEndsBeforeAnotherClientCanOwnInAThousandPartitions(t *testing.T) {
	runs := 1000
	if underRace {
		runs = 100
	}
	closest := time.Hour
	for seed := range uint64(runs) {
		overlap := partition(t, seed)
		if overlap > 0 {
			t.Errorf("partition %d: another client had the lock for %s when the context ended", seed, overlap)
		}
		closest = min(closest, -overlap)
	}
	t.Logf("%d partitions: the context ended %s before another client had the lock, or earlier", runs, closest)
}

// partition returns for how long there were two who thought that they had the lock.
func partition(t *testing.T, seed uint64) (overlap time.Duration) {
	d := throw(seed, forPartition)
	w := newWorld(seed, law{masters: 3 + 2*d.below(2), clients: 2, keys: 1, slow: 0.1, timeout: d.lasting(10*time.Millisecond, 200*time.Millisecond)}, planted{})
	synctest.Test(t, func(t *testing.T) {
		w.people()
		first, other := w.clients[0], w.clients[1]
		first.start()
		other.start()
		ttl := d.lasting(100*time.Millisecond, longestTTL)
		held, stop := first.insist(t.Context(), ttl, &d).Keep(t.Context(), Limits{})
		ended := make(chan time.Time, 1)
		context.AfterFunc(held, func() { ended <- time.Now() })
		time.AfterFunc(d.lasting(time.Microsecond, 3*longestTTL), func() { first.losesMajority(throw(seed, forQuestion)) })
		other.insist(t.Context(), ttl, &d)
		got := time.Now()
		overlap = (<-ended).Sub(got)
		stop()
		first.process.locker.Close()
		other.process.locker.Close()
	})
	return overlap
}

// insist asks until it gets the lock.
func (c *client) insist(ctx context.Context, ttl time.Duration, d *dice) *Lease {
	for {
		lease, err := c.process.locker.Acquire(ctx, "key", ttl, c.name())
		if err == nil {
			return lease
		}
		time.Sleep(d.lasting(100*time.Microsecond, 5*time.Millisecond))
	}
}

// losesMajority cuts the client off from a majority of masters for long, altogether or
// so that it hears no answers.
func (c *client) losesMajority(d dice) {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	from, n := d.below(len(w.hosts)), c.process.locker.quorum+d.below(len(w.hosts)/2+1)
	for i := range n {
		at := c.process.ways[(from+i)%len(w.hosts)]
		if at.deaf = d.chance(0.5); !at.deaf {
			c.loses(at.host.id, 2*longestTTL)
		}
	}
}
