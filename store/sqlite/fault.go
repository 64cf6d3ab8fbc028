package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"quorate/store"
)

// fault is the one place where an error of the driver becomes one of ours: the
// store is away, its tables are missing, or the error as it is, with the file
// named. Errors of ours pass as they are.
func (s *Store) fault(ctx context.Context, err error) error {
	if err == nil || ours(err) {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", s.place, context.Cause(ctx))
	case errors.Is(err, context.DeadlineExceeded):
		return store.Away(s.place, err)
	case away(code(err)):
		return store.Away(s.place, err)
	case strings.HasSuffix(err.Error(), "database is closed"): // database/sql has no name for it
		return store.Away(s.place, err)
	case strings.Contains(err.Error(), "no such table"):
		return fmt.Errorf("%s has no tables of this version (%w): run \"quorate migrate\"", s.place, err)
	}
	return fmt.Errorf("%s: %w", s.place, err)
}

func ours(err error) bool {
	for _, sentinel := range []error{store.ErrClaimed, store.ErrOverlap, store.ErrRevision, store.ErrFenced, store.ErrNotFound, store.ErrAway} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// code is what the driver says in a number, or 0.
func code(err error) int {
	var answer *sqlite.Error
	if !errors.As(err, &answer) {
		return 0
	}
	return answer.Code() & 0xff // the low byte; the rest tells variants apart
}

func isBusy(err error) bool { return code(err) == lib.SQLITE_BUSY }

// away: another process never let us have our turn, or the file cannot be read,
// written or grown.
func away(code int) bool {
	switch code {
	case lib.SQLITE_BUSY, lib.SQLITE_CANTOPEN, lib.SQLITE_IOERR, lib.SQLITE_FULL, lib.SQLITE_READONLY, lib.SQLITE_PERM:
		return true
	}
	return false
}
