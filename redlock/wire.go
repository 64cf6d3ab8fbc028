package redlock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// The driver makes connections: it dials, does TLS, authenticates and selects. What
// a lock asks after that is four commands, and they are written and read here: by
// hand, a question costs no allocation and no goroutine, where the driver's
// pipeline costs a dozen, and that is most of what a lock costs.

// appendCommand appends a command as Redis reads it: an array of strings.
func appendCommand(b []byte, words ...string) []byte {
	b = appendHead(b, '*', len(words))
	for _, w := range words {
		b = appendWord(b, w)
	}
	return b
}

func appendHead(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '\r', '\n')
}

func appendWord(b []byte, w string) []byte {
	b = appendHead(b, '$', len(w))
	b = append(b, w...)
	return append(b, '\r', '\n')
}

// appendTTL appends a TTL in milliseconds, rounded up: the key must not be gone
// before the lease that counts on it, and PEXPIRE 0 would delete it.
func appendTTL(b []byte, ttl time.Duration) []byte {
	return appendNumber(b, int64((ttl+time.Millisecond-1)/time.Millisecond))
}

func appendNumber(b []byte, n int64) []byte {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], n, 10)
	b = appendHead(b, '$', len(text))
	b = append(b, text...)
	return append(b, '\r', '\n')
}

// appendQuestion appends the command that a question is.
func appendQuestion(b []byte, q Question) []byte {
	switch q.Op {
	case Take:
		// GET returns who has it, which is nobody where we got it.
		b = appendHead(b, '*', 7)
		b = appendWord(appendWord(appendWord(b, "SET"), q.Key), q.Token)
		b = appendWord(appendWord(appendWord(b, "NX"), "GET"), "PX")
		return appendTTL(b, q.TTL)
	case Extend:
		b = appendHead(b, '*', 6)
		b = appendWord(appendWord(appendWord(b, "EVALSHA"), extendSHA), "1")
		b = appendWord(appendWord(b, q.Key), q.Token)
		return appendTTL(b, q.TTL)
	case load:
		return appendCommand(b, "SCRIPT", "LOAD", q.Key)
	default:
		return appendCommand(b, "INFO", "server", "replication", "memory", "cluster")
	}
}

// appendReleases appends one command that is all these releases: a call of a script
// costs a server more than what our script does. It answers with a list.
func appendReleases(b []byte, all []asked) []byte {
	b = appendHead(b, '*', 3+2*len(all))
	b = appendWord(appendWord(b, "EVALSHA"), releaseSHA)
	b = appendNumber(b, int64(len(all)))
	for _, a := range all {
		b = appendWord(b, a.Key)
	}
	for _, a := range all {
		b = appendWord(b, a.Token)
	}
	return b
}

// A reply is one answer of Redis. Text is valid until the next one is read.
type reply struct {
	kind   byte  // + status, - error, : number, $ string; * list, > told by itself, _ nothing
	number int64 // or how many parts a list has, which are read next
	text   []byte
	null   bool
}

// maxReply bounds what is believed of a server that says how much it will send.
const maxReply = 1 << 20

// A wire reads replies.
type wire struct {
	in     *bufio.Reader
	big    []byte // for strings
	holder string // that was read last: many are told of the same one
}

func (w *wire) read() (r reply, err error) {
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return r, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return r, errors.New("it does not speak the Redis protocol")
	}
	r.kind, r.text = line[0], line[1:len(line)-2]
	switch r.kind {
	case '+', '-':
		return r, nil
	case ':', '*', '>':
		r.number, err = strconv.ParseInt(string(r.text), 10, 64)
		r.null = r.kind == '*' && r.number < 0
		if r.number > maxReply {
			return r, fmt.Errorf("it announced a list of %d", r.number)
		}
		return r, err
	case '_':
		r.null = true
		return r, nil
	case '$':
		return w.readString(r)
	}
	return r, fmt.Errorf("it answered with %q, which is no answer to a lock", line)
}

func (w *wire) readString(r reply) (reply, error) {
	n, err := strconv.Atoi(string(r.text))
	if err != nil || n < -1 || n > maxReply {
		return r, fmt.Errorf("it announced a string of %q bytes", r.text)
	}
	if n == -1 {
		r.null, r.text = true, nil
		return r, nil
	}
	if cap(w.big) < n+2 {
		w.big = make([]byte, n+2)
	}
	w.big = w.big[:n+2]
	if _, err := io.ReadFull(w.in, w.big); err != nil {
		return r, err
	}
	r.text = w.big[:n]
	return r, nil
}

// answer says what a reply means as the answer to a question.
func (w *wire) answer(q Question, r reply) Answer {
	switch {
	case r.kind == '-' && q.Op == Take && strings.HasPrefix(string(r.text), "WRONGTYPE"):
		return Answer{Holder: "a key that is not a string"}
	case r.kind == '-':
		return Answer{Err: refused(string(r.text)), Sent: true}
	case q.Op == Take && r.null:
		return Answer{OK: true}
	case q.Op == Take && r.kind == '$':
		if string(r.text) != w.holder { // this comparison makes no string
			w.holder = string(r.text)
		}
		return Answer{OK: w.holder == q.Token, Holder: w.holder}
	case r.kind == ':':
		return Answer{OK: r.number == 1}
	}
	return Answer{Err: fmt.Errorf("it answered with %q, which is no answer to a lock", r.kind), Sent: true}
}
