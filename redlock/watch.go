package redlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// watchAgainAfter is how long a master that would not tell is left alone: it cannot
// be reached, its user may not, or it is no Redis. Those who wait then try by time.
const watchAgainAfter = 30 * time.Second

// A watcher has one master tell when keys are gone: a connection of its own reads a
// key with client tracking on, and the server says once when it changes or expires.
// It is there only where somebody has waited, and costs those nothing who do not.
type watcher struct {
	ctx    context.Context
	driver *redis.Options
	gone   *waiters
	ended  sync.WaitGroup

	mu      sync.Mutex
	conn    net.Conn // nil while there is none
	opening bool
	not     time.Time // not before
	keys    []string  // to be asked for when there is a connection
	asked   []string  // read and not answered, in order
}

// watch has the key told of. It returns at once, and may be in vain.
func (w *watcher) watch(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ctx.Err() != nil:
	case w.conn != nil:
		w.ask(key)
	case w.opening:
		w.keys = append(w.keys, key)
	case time.Now().After(w.not):
		w.opening = true
		w.keys = append(w.keys, key)
		w.ended.Go(w.serve)
	}
}

// ask writes the question. The connection is idle but for such questions, of which
// there is one for each failed attempt, so writing does not block.
func (w *watcher) ask(key string) {
	if len(w.asked) >= queueDepth {
		return
	}
	w.asked = append(w.asked, key)
	_ = w.conn.SetWriteDeadline(time.Now().Add(connectWithin))
	_, _ = w.conn.Write(appendCommand(nil, "GET", key)) // a failure shows when the answer is read
}

func (w *watcher) serve() {
	ctx, cancel := context.WithTimeout(w.ctx, connectWithin)
	defer cancel()
	driver := *w.driver
	driver.Protocol, driver.OnConnect = 3, nil
	conn, err := takeOver(ctx, &driver)
	if err == nil {
		defer conn.Close()
		unhook := context.AfterFunc(w.ctx, func() { _ = conn.Close() })
		defer unhook()
		_ = w.listen(conn)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, w.opening, w.keys, w.asked = nil, false, nil, nil
	w.not = time.Now().Add(watchAgainAfter)
}

// listen turns tracking on and hears what is told until the connection breaks.
func (w *watcher) listen(conn net.Conn) error {
	in := wire{in: bufio.NewReader(conn)}
	if _, err := conn.Write(appendCommand(nil, "CLIENT", "TRACKING", "ON")); err != nil {
		return err
	}
	if r, err := in.read(); err != nil || r.kind != '+' {
		return fmt.Errorf("it does not tell of keys: %q, %w", r.text, err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	w.mu.Lock()
	w.conn, w.opening = conn, false
	for _, key := range w.keys {
		w.ask(key)
	}
	w.keys = nil
	w.mu.Unlock()
	for {
		r, err := in.read()
		if err != nil {
			return err
		}
		if r.kind == '>' {
			if err := w.told(&in, r.number); err != nil {
				return err
			}
			continue
		}
		key, ok := w.answered()
		if !ok || r.kind == '-' && !strings.HasPrefix(string(r.text), "WRONGTYPE") {
			return errors.New("it may not tell of keys")
		}
		if r.null {
			w.gone.freed(key) // it was released before we asked
		}
	}
}

func (w *watcher) answered() (key string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) == 0 {
		return "", false
	}
	key = w.asked[0]
	w.asked = w.asked[1:]
	return key, true
}

// told reads what the server says by itself: "invalidate", and the keys that have
// changed, or nothing where all of them have.
func (w *watcher) told(in *wire, parts int64) error {
	if _, err := in.read(); err != nil || parts != 2 {
		return errors.Join(err, errors.New("it tells what we do not know"))
	}
	list, err := in.read()
	if err != nil {
		return err
	}
	if list.null {
		w.gone.allFreed()
		return nil
	}
	for range list.number {
		key, err := in.read()
		if err != nil {
			return err
		}
		w.gone.freed(string(key.text))
	}
	return nil
}
