package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"quorate/store"
)

// fault is the one place where an error of pgx becomes one of ours: the store is
// away, its schema is missing, or the error as it is, with the place named.
func (s *Store) fault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s: %w", s.place, context.Cause(ctx))
	}
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		switch answer.Code {
		case "3F000", "42P01", "42883": // no schema, table, function
			return fmt.Errorf("%s has no tables of this version (%s): run \"quorate migrate\"", s.place, answer.Message)
		}
	}
	if isAway(err) {
		return store.Away(s.place, brief{err})
	}
	return fmt.Errorf("%s: %w", s.place, err)
}

// isRefused reports whether the server has answered, and done nothing.
func isRefused(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && !isAway(err)
}

// isAway reports whether nobody was there to answer.
func isAway(err error) bool {
	var connect *pgconn.ConnectError
	var answer *pgconn.PgError
	var network net.Error
	switch {
	case errors.As(err, &connect):
		return true
	case errors.As(err, &answer):
		// Connection exceptions, a server that starts or stops, too many
		// connections, and a standby, which takes no writes.
		code := answer.Code
		return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") || code == "53300" || code == "25006"
	}
	// A deadline that has passed is an error of the network, too: its Timeout is.
	return errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, puddle.ErrClosedPool)
}

// brief says in one line what pgx says in several, one for each address and TLS
// mode that it tried.
type brief struct{ err error }

func (b brief) Unwrap() error { return b.err }

func (b brief) Error() string {
	var answer *pgconn.PgError
	var network *net.OpError
	switch {
	case errors.As(b.err, &answer):
		return fmt.Sprintf("%s (SQLSTATE %s)", answer.Message, answer.Code)
	case errors.As(b.err, &network):
		return network.Error()
	case errors.Is(b.err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(b.err, puddle.ErrClosedPool):
		return "it was closed by us"
	}
	return strings.Join(strings.Fields(b.err.Error()), " ")
}
