// Package postgres keeps runs in Postgres 14 or newer, in the schema quorate. It
// is the store for production: any number of replicas share one database.
//
// The database carries the promises, not this package: constraints and triggers
// (migrations/postgres/0001) hold for whoever writes, and the path of a run is
// four functions (0002), each called in one round trip. This package turns calls
// into rows, and faults into errors.
//
// Limits. Time is the database's. The server must not lose what it acknowledged:
// synchronous_commit stays as the server has it, and off breaks that promise, as
// does failing over to a standby that lags. Behind PgBouncer, have it ignore the
// startup parameters that it does not know (ignore_startup_parameters).
//
// What may live here: SQL, pgx, and nothing that decides about jobs.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"quorate/store"
)

// A Store is a pool of connections to one database.
type Store struct {
	pool     *pgxpool.Pool
	place    string // postgres at host:port/database
	claims   *group[store.Claim, claimed]
	finishes *group[ending, ended]
}

var _ store.Store = (*Store)(nil)

// Open connects to postgres://user:password@host:port/database. What pgx takes as
// a query there (sslmode, pool_max_conns, application_name, …) it takes here.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	config, err := configure(rawURL)
	if err != nil {
		return nil, err
	}
	conn := config.ConnConfig
	s := &Store{place: fmt.Sprintf("postgres at %s:%d/%s", conn.Host, conn.Port, conn.Database)}
	s.claims = newGroup(s.sendClaims, isRefused, lockOf)
	s.finishes = newGroup(s.sendFinishes, isRefused, runOf)
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("%s: %w", s.place, err)
	}
	if err := s.pool.Ping(ctx); err != nil {
		s.pool.Close()
		return nil, s.fault(ctx, err)
	}
	return s, nil
}

// Close waits for the calls that are under way.
func (s *Store) Close() { s.pool.Close() }

// Defaults of a connection, where the url says nothing.
const (
	maxConns       = 10
	connectTimeout = 5 * time.Second
)

var defaults = map[string]string{
	"application_name": "quorate",
	// The functions count on each of their statements seeing what was committed
	// before it.
	"default_transaction_isolation": "read committed",
	// To compile a plan takes longer than to run any of ours.
	"jit": "off",
	// Above the deadlines of all callers: these end what a vanished replica left.
	"statement_timeout":                   "30s",
	"lock_timeout":                        "10s",
	"idle_in_transaction_session_timeout": "30s",
}

func configure(rawURL string) (*pgxpool.Config, error) {
	parsed, err := url.Parse(rawURL)
	switch {
	case err != nil, parsed.Scheme != "postgres" && parsed.Scheme != "postgresql",
		parsed.User == nil && strings.Contains(rawURL, "@"): // a / ? or # in the password ended the host early
		// Not even a part of it is shown: in a url that does not parse, any part may
		// be the password.
		return nil, errors.New("the store's url is not one of Postgres: want postgres://user:password@host:5432/database, with the special characters of the password escaped (%40 for @)")
	}
	config, err := pgxpool.ParseConfig(rawURL)
	if err != nil {
		return nil, fmt.Errorf("the store's url, postgres at %s%s, is refused: %s", parsed.Host, parsed.Path, reason(err, parsed))
	}
	given := parsed.Query()
	if !given.Has("pool_max_conns") {
		config.MaxConns = maxConns
	}
	if config.ConnConfig.ConnectTimeout == 0 || !given.Has("connect_timeout") {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	for name, value := range defaults {
		if _, set := config.ConnConfig.RuntimeParams[name]; !set {
			config.ConnConfig.RuntimeParams[name] = value
		}
	}
	config.AfterConnect = timesInUTC
	return config, nil
}

// reason is what pgx says of a url, less the url and less its passwords.
func reason(err error, parsed *url.URL) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "`: "); ok {
		text = after
	}
	password, _ := parsed.User.Password()
	for _, secret := range []string{password, parsed.Query().Get("password"), parsed.Query().Get("sslpassword")} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

func timesInUTC(_ context.Context, conn *pgx.Conn) error {
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
	return nil
}

// Now is the clock of the database.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := one(ctx, s, pgx.RowTo[time.Time], `SELECT clock_timestamp()`)
	return now, err
}

// many runs a query and turns each of its rows into a T.
func many[T any](ctx context.Context, s *Store, row pgx.RowToFunc[T], query string, args ...any) ([]T, error) {
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	list, err := pgx.CollectRows(rows, row)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	return list, nil
}

// one is many for a query with one row: pgx.ErrNoRows where there is none.
func one[T any](ctx context.Context, s *Store, row pgx.RowToFunc[T], query string, args ...any) (T, error) {
	list, err := many(ctx, s, row, query, args...)
	if err == nil && len(list) == 0 {
		err = pgx.ErrNoRows
	}
	if err != nil {
		var none T
		return none, err
	}
	return list[0], nil
}
