// Package sqlite keeps runs in one file: the embedded store, for a single machine
// and for trying things out. It means the same as the Postgres body.
//
// Any number of processes on one machine may share the file. Writers take turns:
// each write is a transaction that began IMMEDIATE, so what it read stays true
// until it commits, and a commit is on the disk before it is acknowledged. The
// store's clock is the machine's, read inside that turn.
//
// Limits: not over a network file system, whose locks cannot be trusted; no
// :memory:, which two processes could not share.
//
// What may live here: SQL, the driver, and nothing that decides about jobs.
package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"quorate/store"
)

// A Store is a file with one connection that writes and some that read.
type Store struct {
	write, read *sql.DB
	place       string // sqlite file path
}

var _ store.Store = (*Store)(nil)

const readers = 4

// Open opens the file at path, and creates it where there is none.
func Open(ctx context.Context, path string) (*Store, error) {
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return nil, fmt.Errorf("sqlite store %q: want the path of a file", path)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite store %q: %w", path, err)
	}
	s := &Store{place: fmt.Sprintf("sqlite file %s", path)}
	if s.write, err = open(full, 1, "_txlock=immediate"); err != nil {
		return nil, s.fault(ctx, err)
	}
	if s.read, err = open(full, readers, "_query_only=1"); err != nil {
		s.write.Close()
		return nil, s.fault(ctx, err)
	}
	if err := s.keepLog(ctx); err != nil {
		s.Close()
		return nil, s.fault(ctx, err)
	}
	return s, nil
}

// patience is how long a writer waits for its turn where its context says nothing.
const patience = 5 * time.Second

// keepLog makes the file one with a write-ahead log, which it then is for all
// connections. SQLite lets nobody wait here: while others open a new file too, or
// the last one closes it, it says busy at once, whatever the busy timeout.
func (s *Store) keepLog(ctx context.Context) error {
	for began := time.Now(); ; {
		_, err := s.write.ExecContext(ctx, `PRAGMA journal_mode = WAL`)
		if !isBusy(err) || time.Since(began) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Millisecond + rand.N(5*time.Millisecond)):
		}
	}
}

func open(path string, conns int, option string) (*sql.DB, error) {
	// As a URI, in which no character of a path has a meaning of its own.
	uri := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	uri.RawQuery = fmt.Sprintf("_busy_timeout=%d&_synchronous=FULL&_foreign_keys=1&_dqs=0&%s", patience.Milliseconds(), option)
	db, err := sql.Open("sqlite", uri.String())
	if err == nil {
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
	}
	return db, err
}

// Close waits for the calls that are under way.
func (s *Store) Close() {
	s.read.Close()
	s.write.Close()
}

// Now is the clock of this machine.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return clock(), s.fault(ctx, s.read.PingContext(ctx))
}

func clock() time.Time { return store.Instant(time.Now()) }

// turn runs a transaction that is alone in writing. It is given the clock as it
// stands once its turn has come.
func (s *Store) turn(ctx context.Context, work func(tx *sql.Tx, now time.Time) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fault(ctx, err)
	}
	if err := work(tx, clock()); err != nil {
		tx.Rollback() // the error that we have says more than its own
		return s.fault(ctx, err)
	}
	return s.fault(ctx, tx.Commit())
}

// A querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// many runs a query and turns each of its rows into a T.
func many[T any](ctx context.Context, q querier, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return collect(rows, scan)
}

func collect[T any](rows *sql.Rows, scan func(*sql.Rows) (T, error)) (list []T, err error) {
	defer rows.Close()
	for rows.Next() {
		item, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, rows.Err()
}

// scanOne reads rows of a single column.
func scanOne[T any](rows *sql.Rows) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}
