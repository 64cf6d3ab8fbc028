package redlock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var (
	//go:embed extend.lua
	extendSource string
	//go:embed release.lua
	releaseSource string

	extendScript  = redis.NewScript(extendSource)
	releaseScript = redis.NewScript(releaseSource)
)

// queueDepth is how many questions may wait for one master. A master that hangs
// fills it; then the answer is an error at once, not a growing pile.
const queueDepth = 4096

// batchSize is how many questions travel in one pipeline at most.
const batchSize = 512

// connectWithin is how long a new connection may take, handshake included. That is
// longer than a question may wait: questions do not wait for it, they run out.
const connectWithin = time.Second

// A redisMaster asks one Redis server. Its one goroutine sends the questions that
// have gathered as one pipeline, reads the answers, and takes the next ones: what
// was asked in order is executed in order, and a master costs one connection and
// one goroutine however many callers there are.
type redisMaster struct {
	name      string
	client    *redis.Client
	health    *health
	connected bool // as far as its goroutine knows

	queue chan asked
	stop  context.CancelFunc
	ended sync.WaitGroup
	ctx   context.Context // ends when the master is closed
}

type asked struct {
	Question
	answer func(Answer)
}

func newRedisMaster(rawURL string, opts Options, known *census) (*redisMaster, error) {
	ro, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	name := ro.Addr
	if ro.DB != 0 {
		name = fmt.Sprintf("%s/%d", ro.Addr, ro.DB)
	}
	m := &redisMaster{name: name, queue: make(chan asked, queueDepth)}
	m.health = newHealth(name, opts.RestartGuard, known)
	forLocks(ro)
	ro.OnConnect = m.greet
	m.client = redis.NewClient(ro)
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.ended.Go(m.serve)
	return m, nil
}

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

// forLocks sets a client up for locking rather than caching. A retried SET NX
// reports our own lock as somebody else's; a deadline that reads ignore lets one
// hung master hold everybody up. Questions bring deadlines of their own, which are
// shorter than these.
func forLocks(ro *redis.Options) {
	ro.MaxRetries = -1
	ro.DialerRetries = 1
	ro.ContextTimeoutEnabled = true
	ro.DialTimeout = connectWithin
	ro.ReadTimeout = connectWithin
	ro.WriteTimeout = connectWithin
	ro.PoolSize = 1
	ro.PipelinePoolSize = 1
	ro.DisableIdentity = true
	ro.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Silence turns off what the Redis driver prints on stderr at each failed dial. The
// driver has one such setting for the whole process, so this is for a program to
// decide, and not for New; what there is to say is in the errors and in Status.
func Silence() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func (m *redisMaster) Name() string   { return m.name }
func (m *redisMaster) Status() Status { return m.health.status() }

var errClosed = errors.New("locker is closed")

func (m *redisMaster) Ask(q Question, answer func(Answer)) {
	if q.Op == Take {
		if err := m.health.quarantine(); err != nil {
			answer(Answer{Err: err})
			return
		}
	}
	select {
	case <-m.ctx.Done():
		answer(Answer{Err: errClosed})
		return
	default:
	}
	select {
	case m.queue <- asked{q, answer}:
	default:
		answer(Answer{Err: fmt.Errorf("%d questions wait for an answer already", queueDepth)})
	}
}

func (m *redisMaster) serve() {
	batch := make([]asked, 0, batchSize)
	for {
		select {
		case <-m.ctx.Done():
			m.refuseRest()
			return
		case a := <-m.queue:
			err := m.connect()
			batch = m.gather(append(batch[:0], a))
			if err != nil {
				answerAll(batch, Answer{Err: err})
				continue
			}
			m.send(batch)
		}
	}
}

// connect sees to it that there is a connection, so that a question's deadline
// is spent on its answer and not on a handshake.
func (m *redisMaster) connect() error {
	if m.connected {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, connectWithin)
	defer cancel()
	start := time.Now()
	pipe := m.client.Pipeline() // of the pool that send uses
	pipe.Ping(ctx)
	_, err := pipe.Exec(ctx)
	m.health.answered(time.Since(start), connectionError(err))
	if err != nil {
		return explain(err)
	}
	m.connected = true
	return nil
}

func answerAll(batch []asked, a Answer) {
	for _, one := range batch {
		one.answer(a)
	}
}

// gather adds what else waits, and answers at once what has waited too long.
func (m *redisMaster) gather(batch []asked) []asked {
	for len(batch) < batchSize {
		select {
		case a := <-m.queue:
			batch = append(batch, a)
			continue
		default:
		}
		break
	}
	now := time.Now()
	fresh := batch[:0]
	for _, a := range batch {
		if now.Before(a.Deadline) {
			fresh = append(fresh, a)
		} else {
			a.answer(Answer{Err: errTimeout})
		}
	}
	return fresh
}

func (m *redisMaster) send(batch []asked) {
	if len(batch) == 0 {
		return
	}
	deadline := batch[0].Deadline
	for _, a := range batch {
		if a.Deadline.After(deadline) {
			deadline = a.Deadline
		}
	}
	ctx, cancel := context.WithDeadline(m.ctx, deadline)
	defer cancel()

	start := time.Now()
	pipe := m.client.Pipeline()
	replies := make([]*redis.Cmd, len(batch))
	for i, a := range batch {
		replies[i] = put(ctx, pipe, a.Question, false)
	}
	_, err := pipe.Exec(ctx)
	m.evalMissing(ctx, batch, replies)
	lost := connectionError(err)
	m.connected = lost == nil
	m.health.answered(time.Since(start), lost)
	for i, a := range batch {
		reply := read(a.Question, replies[i])
		if err := m.health.quarantine(); err != nil && a.Op == Take && reply.OK {
			reply = Answer{Err: err} // the connection was new, and so was the server
		}
		a.answer(reply)
	}
}

// put writes the question into the pipeline; whole sends a script's text instead
// of its hash.
func put(ctx context.Context, pipe redis.Pipeliner, q Question, whole bool) *redis.Cmd {
	script := func(s *redis.Script, args ...any) *redis.Cmd {
		if whole {
			return s.Eval(ctx, pipe, []string{q.Key}, args...)
		}
		return s.EvalSha(ctx, pipe, []string{q.Key}, args...)
	}
	switch q.Op {
	case Take:
		// GET returns who has it, which is nobody where we got it.
		return pipe.Do(ctx, "SET", q.Key, q.Token, "NX", "GET", "PX", q.TTL.Milliseconds())
	case Extend:
		return script(extendScript, q.Token, q.TTL.Milliseconds())
	case Release:
		return script(releaseScript, q.Token)
	default:
		return pipe.Do(ctx, "PING")
	}
}

// evalMissing repeats the scripts that the server had forgotten, with their text.
func (m *redisMaster) evalMissing(ctx context.Context, batch []asked, replies []*redis.Cmd) {
	var missing []int
	for i := range batch {
		if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			missing = append(missing, i)
		}
	}
	if missing == nil {
		return
	}
	pipe := m.client.Pipeline()
	for _, i := range missing {
		replies[i] = put(ctx, pipe, batch[i].Question, true)
	}
	_, _ = pipe.Exec(ctx) // each reply carries its own error
}

func read(q Question, reply *redis.Cmd) Answer {
	err := reply.Err()
	switch {
	case q.Op == Take && errors.Is(err, redis.Nil):
		return Answer{OK: true}
	case q.Op == Take && err == nil:
		holder, _ := reply.Text()
		return Answer{OK: holder == q.Token, Holder: holder}
	case q.Op == Take && redis.HasErrorPrefix(err, "WRONGTYPE"):
		return Answer{Holder: "a key that is not a string"}
	case err != nil:
		return Answer{Err: explain(err)}
	case q.Op == Ping:
		return Answer{OK: true}
	}
	n, _ := reply.Int()
	return Answer{OK: n == 1}
}

// explain turns the errors that an operator meets most into words.
func explain(err error) error {
	var netErr net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return errTimeout
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
		return errors.New("user or password is refused")
	case redis.HasErrorPrefix(err, "NOPERM"):
		return fmt.Errorf("the user lacks a permission: %s", strings.TrimPrefix(err.Error(), "NOPERM "))
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("cannot connect: %s", strings.TrimPrefix(op.Err.Error(), "connect: "))
	}
	return err
}

// connectionError drops the errors that a healthy server answers with.
func connectionError(err error) error {
	var reply redis.Error
	if err == nil || errors.As(err, &reply) && !redis.HasErrorPrefix(err, "NOAUTH") {
		return nil
	}
	return explain(err)
}

func (m *redisMaster) refuseRest() {
	for {
		select {
		case a := <-m.queue:
			a.answer(Answer{Err: errClosed})
		default:
			return
		}
	}
}

func (m *redisMaster) Close() {
	m.stop()
	m.ended.Wait()
	m.refuseRest()
	_ = m.client.Close()
}
