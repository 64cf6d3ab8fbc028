package redlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A link is a connection and what was asked over it.
type link struct {
	conn   net.Conn
	wire   wire
	out    []byte
	flying []asked // written and not answered, in order
	next   int     // the first of flying that is not answered
	listed int     // answers that a list still has
	since  time.Time
	limit  time.Time // the deadline that conn has
}

// send writes all that flies, in one go. It does not block for long: it is called
// while nothing else is under way, by whoever asks, or by the goroutine. A failed
// write shows when the answer is read.
func (l *link) send() {
	for i := 0; i < len(l.flying); {
		n := l.releasesFrom(i)
		if n == 0 {
			l.out = appendQuestion(l.out, l.flying[i].Question)
			n = 1
		} else {
			l.flying[i].joined = n
			l.out = appendReleases(l.out, l.flying[i:i+n])
		}
		i += n
	}
	l.since = time.Now()
	if l.limit.Sub(l.since) < patience*9/10 {
		l.limit = l.since.Add(patience)
		_ = l.conn.SetDeadline(l.limit)
	}
	_, _ = l.conn.Write(l.out)
	l.out = l.out[:0]
}

// maxJoined is how many releases travel as one: a script must not hold a server up.
const maxJoined = 100

// releasesFrom counts the releases that are next to each other from here on.
func (l *link) releasesFrom(i int) (n int) {
	for n < maxJoined && i+n < len(l.flying) && l.flying[i+n].Op == Release {
		n++
	}
	return n
}

// overdue reports whether the oldest question that was written has no answer in
// its time.
func (l *link) overdue() bool {
	return l.next < len(l.flying) && time.Now().After(l.flying[l.next].Deadline)
}

// connect lets the driver make a connection and greet the server, and takes it over.
func (m *redisMaster) connect() (*link, error) {
	ctx, cancel := context.WithTimeout(m.ctx, connectWithin)
	defer cancel()
	start := time.Now()
	conn, err := takeOver(ctx, m.driver)
	if err != nil {
		return nil, err
	}
	m.health.answered(time.Since(start), nil)
	return &link{conn: conn, wire: wire{in: bufio.NewReaderSize(conn, 16<<10)}}, nil
}

// takeOver has the driver make a connection, and keeps it from using it further.
func takeOver(ctx context.Context, options *redis.Options) (net.Conn, error) {
	// A client of its own for each connection: one that failed to dial would answer
	// with that failure for a second more.
	driver, dial := *options, redis.NewDialer(options)
	dialed := make(chan net.Conn, 1)
	driver.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			select {
			case dialed <- conn:
			default:
			}
		}
		return conn, err
	}
	client := redis.NewClient(&driver)
	if err := client.Conn().Ping(ctx).Err(); err != nil { // checks it out, and keeps it
		_ = client.Close()
		return nil, explain(err)
	}
	return takenOver{<-dialed, client}, nil
}

// A takenOver connection is one that the driver made and does not use any more.
type takenOver struct {
	net.Conn
	client *redis.Client
}

func (c takenOver) Close() error { return c.client.Close() }

// parseURL is redis.ParseURL without its errors, which print the password.
func parseURL(raw string) (*redis.Options, error) {
	ro, err := redis.ParseURL(raw)
	if err == nil {
		return ro, nil
	}
	if u, uerr := url.Parse(raw); uerr == nil && u.Host != "" {
		return nil, fmt.Errorf("address of %s is not a Redis URL: write redis://[user:password@]host:port[/db], or rediss:// for TLS", u.Host)
	}
	return nil, errors.New("address is not a Redis URL: write redis://[user:password@]host:port[/db], or rediss:// for TLS")
}

// forLocks sets the driver up for one connection that we then use by ourselves: no
// retries, no chatter, no second protocol.
func forLocks(ro *redis.Options) {
	ro.MaxRetries = -1
	ro.DialerRetries = 1
	ro.ContextTimeoutEnabled = true
	ro.DialTimeout, ro.ReadTimeout, ro.WriteTimeout = connectWithin, connectWithin, connectWithin
	ro.PoolSize, ro.PipelinePoolSize = 1, 1
	ro.Protocol = 2
	ro.DisableIdentity = true
	ro.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// refused turns an error that Redis answered with into words.
func refused(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "NOAUTH", "WRONGPASS":
		return errors.New("user or password is refused")
	case "NOPERM":
		return fmt.Errorf("the user lacks a permission: %s", rest)
	}
	return errors.New(text)
}

// explain turns the errors of a connection into words.
func explain(err error) error {
	var netErr net.Error
	var op *net.OpError
	var answer redis.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return errTimeout
	case errors.As(err, &answer):
		return refused(answer.Error())
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("cannot connect: %s", strings.TrimPrefix(op.Err.Error(), "connect: "))
	}
	return err
}
