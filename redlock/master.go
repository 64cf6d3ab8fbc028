package redlock

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"time"
)

// A Master is one independent server that keeps keys. There are two: Redis, and
// the one in memory that the tests break on purpose.
type Master interface {
	// Name is the address, for people; it never holds a password.
	Name() string

	// Ask asks and returns at once. The hearer hears the answer exactly once, with
	// its seat, on any goroutine, and perhaps long after the deadline: whoever waits
	// minds the time by itself. Questions are put to the server in the order in which
	// they were asked, but for a free release: no other overtakes the SET before it.
	Ask(q Question, hearer Hearer, seat int)

	// Status says how the master is, as it last answered.
	Status() Status

	Close()
}

// A Hearer hears answers: a ballot counts them, the janitor's chores note them.
type Hearer interface {
	Hear(seat int, a Answer)
}

// An Op is what is asked of a master.
type Op uint8

const (
	Take    Op = iota // set the key to our token if it is free
	Extend            // prolong the key if it holds our token
	Release           // delete the key if it holds our token
	Ping              // say whether you may vote
	load              // learn the script that is the key; nobody hears the answer
)

// A Question is one thing that is asked of every master.
type Question struct {
	Op       Op
	Key      string
	Token    string
	TTL      time.Duration
	Deadline time.Time // an answer after that is of no use
	Free     bool      // of a Release: its SET was answered, so that it may go before others
}

// An Answer is what one master said.
type Answer struct {
	OK     bool   // yes
	Holder string // the token in the key, if that is the reason of a no to Take
	Err    error  // it did not answer, or may not vote
	Sent   bool   // with Err: the question may have reached the server all the same
}

// The causes given for a master that has not answered in time, and for one that has
// forgotten a lease.
var (
	errTimeout = errors.New("no answer in time")
	errGone    = errors.New("no longer has the key")
)

// The token is the note, a bar, and 128 random bits: the random part proves a key
// ours, the note tells others whose it is.
func newToken(note string) string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails: it would end the program
	return note + "|" + base64.RawURLEncoding.EncodeToString(random[:])
}

// noteOf returns what a token tells others: its note, or the whole of a value that
// another program wrote.
func noteOf(token string) string {
	if i := strings.LastIndexByte(token, '|'); i >= 0 && len(token)-i-1 == 22 {
		return token[:i]
	}
	return token[:min(len(token), MaxKey)]
}
