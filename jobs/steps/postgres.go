package steps

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"quorate/jobs"
	"quorate/migrations"
)

// Postgres is spoken to below pgx's types: parameters carry casts, so values travel
// as text both ways, and what a statement returned is shown as psql would.
//
// A new session costs Postgres a process with cold caches, some ten times what a
// step takes in a warm one. So sessions are used again, soon, and only those whose
// step committed and that DISCARD ALL has made as good as new.
type postgres struct {
	config *pgconn.Config
	room   chan struct{} // one place for each step at work
	warm   chan *session // idle ones; as many as there is room, so that none is ever in the way
	closed atomic.Bool
}

// A session is a connection and what was learnt about its server.
type session struct {
	*pgconn.PgConn
	watches bool // the server can watch whether we are there while it works
	idle    time.Time
}

const (
	serverMargin = 500 * time.Millisecond // the server stops a statement this much after we should have
	idleLimit    = 30 * time.Second       // an older session may have been cut by something on the way
	cancelWait   = 3 * time.Second        // for a cancelled statement to say so, before the line is cut
)

func openPostgres(address string) (database, error) {
	config, err := pgconn.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = checkLimit
	}
	config.RuntimeParams["application_name"] = "quorate"
	config.RuntimeParams["timezone"] = "UTC" // replicas must agree on what a date is
	config.RuntimeParams["standard_conforming_strings"] = "on"
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelWait}
	}
	return &postgres{config: config, room: make(chan struct{}, maxConns), warm: make(chan *session, maxConns)}, nil
}

func (p *postgres) rules() *dialect { return postgresDialect }

// close ends the idle sessions; one that is at work ends with its step.
func (p *postgres) close() {
	p.closed.Store(true)
	for conn := p.take(); conn != nil; conn = p.take() {
		hangUp(conn.PgConn)
	}
}

func (p *postgres) take() *session {
	select {
	case conn := <-p.warm:
		return conn
	default:
		return nil
	}
}

func (p *postgres) prepare(ctx context.Context) error {
	tables, err := migrations.Target("postgres")
	if err != nil {
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, p.config)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	// IF NOT EXISTS alone fails where two processes create a table at once.
	_, err = conn.Exec(ctx, "BEGIN; SELECT pg_advisory_xact_lock(hashtext('quorate_fence')); "+tables+"; COMMIT").ReadAll()
	return err
}

func (p *postgres) check(ctx context.Context) error {
	conn, err := pgconn.ConnectConfig(ctx, p.config)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	got, err := ask(ctx, conn, `SELECT string_agg(t || ' lacks ' || p, ', ')
		FROM (VALUES ('quorate_fence'), ('quorate_effect')) AS tables(t),
		     (VALUES ('SELECT'), ('INSERT'), ('UPDATE')) AS privileges(p)
		WHERE NOT has_table_privilege(t, p) AND (t, p) <> ('quorate_effect', 'UPDATE')`)
	if err != nil {
		return unprepared(err)
	}
	if got[0] != "" {
		return fmt.Errorf("its user may not work with the guard tables: %s: grant it", got[0])
	}
	return nil
}

// ask returns the first row of an answer, with NULL as "", or nil if there is none.
func ask(ctx context.Context, conn *pgconn.PgConn, sql string, args ...any) (row []string, err error) {
	values := make([][]byte, len(args))
	for i, a := range args {
		values[i] = asText(a)
	}
	reader := conn.ExecParams(ctx, sql, values, nil, nil, nil)
	for reader.NextRow() {
		if row != nil {
			continue
		}
		for _, cell := range reader.Values() {
			row = append(row, string(cell))
		}
	}
	_, err = reader.Close()
	return row, err
}

func asText(v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil // NULL
	case time.Time:
		return []byte(v.Format(time.RFC3339Nano))
	case int64:
		return strconv.AppendInt(nil, v, 10)
	case jobs.Fence:
		return strconv.AppendInt(nil, int64(v), 10)
	}
	return fmt.Append(nil, v)
}

func unprepared(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P01" {
		return ErrUnprepared
	}
	return err
}

func hangUp(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx) // the server rolls back what was open
}

// session returns one that has begun its transaction. A warm one may have died
// without our knowing; as nothing was begun on it, a new one will do.
func (p *postgres) session(ctx context.Context, e effect, how terms) (*session, error) {
	for conn := p.take(); conn != nil; conn = p.take() {
		if time.Since(conn.idle) < idleLimit && conn.begin(ctx, e, how) == nil {
			return conn, nil
		}
		hangUp(conn.PgConn)
	}
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := conn.begin(ctx, e, how); err != nil {
		hangUp(conn.PgConn)
		return nil, err
	}
	return conn, nil
}

func (p *postgres) dial(ctx context.Context) (*session, error) {
	conn, err := pgconn.ConnectConfig(ctx, p.config)
	if err != nil {
		return nil, err
	}
	// Rolled back, this does nothing but say whether it could: servers before 14
	// cannot, nor can some systems.
	_, err = conn.Exec(ctx, "BEGIN; SET LOCAL client_connection_check_interval = '1s'; ROLLBACK").ReadAll()
	var refused *pgconn.PgError
	if err != nil && !errors.As(err, &refused) {
		hangUp(conn)
		return nil, err
	}
	if refused != nil {
		if _, err := conn.Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
			hangUp(conn)
			return nil, err
		}
	}
	return &session{PgConn: conn, watches: err == nil}, nil
}

// begin names the session after its run, for those who look into pg_stat_activity,
// a newer run among them.
func (s *session) begin(ctx context.Context, e effect, how terms) error {
	local, begin := "LOCAL ", "BEGIN"
	if how.isolation != "" {
		begin += " ISOLATION LEVEL " + how.isolation
	}
	if how.loose { // its session is not used again
		local, begin = "", "SELECT"
	}
	set := func(name string, value any) string { return fmt.Sprintf("; SET %s%s = '%v'", local, name, value) }
	sql := begin + set("statement_timeout", statementLimit(ctx).Milliseconds()) +
		set("idle_in_transaction_session_timeout", how.patience.Milliseconds()) +
		set("application_name", fmt.Sprintf("quorate fence %d run %d", e.fence, e.run))
	if s.watches { // so that it stops a statement whose replica has died
		sql += set("client_connection_check_interval", "1s")
	}
	_, err := s.Exec(ctx, sql).ReadAll()
	return err
}

// statementLimit is how long the server may work on one statement: the time until
// the deadline, and a margin in which we stop it ourselves. 0 is no limit.
func statementLimit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(deadline), 0) + serverMargin
}

// discard takes back all that a step can leave behind in its session: settings,
// roles, temporary tables, locks, subscriptions.
func (s *session) discard() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := s.Exec(ctx, "DISCARD ALL").ReadAll()
	s.idle = time.Now()
	return err == nil
}
