package redlock

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What a caller branches on.
var (
	// ErrTaken: enough masters answered, and the key is somebody else's.
	ErrTaken = errors.New("lock is taken")
	// ErrNoQuorum: too few masters answered to decide anything.
	ErrNoQuorum = errors.New("no quorum of masters")
	// ErrValidity: the lock was granted too late to be of use.
	ErrValidity = errors.New("too little validity left")
	// ErrLost: the lease has ended; somebody else may have the lock.
	ErrLost = errors.New("lease has ended")
)

// A TakenError says who has the lock.
type TakenError struct {
	Key string
	// Note is the holder's note, or the key's value where another program wrote it.
	Note string
	// Held is true if one holder is known to have a quorum. Otherwise the vote was
	// split, perhaps so that nobody has the lock: try again after a random pause.
	Held bool

	at int // a master that has the holder's key, or -1
}

func (e *TakenError) Error() string {
	if !e.Held {
		return fmt.Sprintf("lock %q: the vote was split", e.Key)
	}
	return fmt.Sprintf("lock %q is taken by %q", e.Key, e.Note)
}

func (e *TakenError) Is(target error) bool { return target == ErrTaken }

// A NoQuorumError says which masters did not answer, and why.
type NoQuorumError struct {
	Key    string
	Need   int
	Of     int
	Causes []*MasterError
}

func (e *NoQuorumError) Error() string {
	causes := make([]string, len(e.Causes))
	for i, c := range e.Causes {
		causes[i] = c.Error()
	}
	return fmt.Sprintf("%d of %d masters cannot vote, %d are needed: %s",
		len(e.Causes), e.Of, e.Need, strings.Join(causes, "; "))
}

func (e *NoQuorumError) Is(target error) bool { return target == ErrNoQuorum }

func (e *NoQuorumError) Unwrap() []error {
	all := make([]error, len(e.Causes))
	for i, c := range e.Causes {
		all[i] = c
	}
	return all
}

// A MasterError is why one master did not answer a question.
type MasterError struct {
	Master string
	Err    error
}

func (e *MasterError) Error() string { return e.Master + ": " + e.Err.Error() }
func (e *MasterError) Unwrap() error { return e.Err }

// A ValidityError says that the lock was granted with too little time left.
type ValidityError struct {
	Key        string
	Left, Want time.Duration
}

func (e *ValidityError) Error() string {
	return fmt.Sprintf("lock %q was granted with %s of validity left, less than %s", e.Key, e.Left, e.Want)
}

func (e *ValidityError) Is(target error) bool { return target == ErrValidity }
