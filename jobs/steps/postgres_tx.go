package steps

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"quorate/jobs"
)

type postgresTx struct {
	effect
	terms
	db        *postgres
	conn      *session
	xid       string
	committed bool
	open      bool
}

func (p *postgres) begin(ctx context.Context, e effect, how terms) (transaction, error) {
	select {
	case p.room <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("all %d connections were busy: %w", maxConns, context.Cause(ctx))
	}
	conn, err := p.session(ctx, e, how)
	if err != nil {
		<-p.room
		return nil, err
	}
	return &postgresTx{effect: e, terms: how, db: p, conn: conn, open: true}, nil
}

func (t *postgresTx) guard(ctx context.Context) (*marker, error) {
	var row []string
	err := overtaking(ctx, t.patience, t.clear, func() (err error) {
		row, err = ask(ctx, t.conn.PgConn, `INSERT INTO quorate_fence AS held (lock_name, fence) VALUES ($1, $2)
			ON CONFLICT (lock_name) DO UPDATE SET fence = greatest(held.fence, excluded.fence)
			RETURNING fence, pg_current_xact_id()`, t.lock, t.fence)
		return err
	})
	if err != nil {
		return nil, unprepared(err)
	}
	t.xid = row[1]
	if seen, _ := strconv.ParseInt(row[0], 10, 64); seen > int64(t.fence) {
		return nil, &fencedError{t.lock, t.fence, jobs.Fence(seen)}
	}
	row, err = ask(ctx, t.conn.PgConn, `INSERT INTO quorate_effect (job, due, step, fence, run_id) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (job, due, step) DO NOTHING RETURNING run_id`, t.job, t.due, t.step, t.fence, t.run)
	if err != nil || row != nil {
		return nil, unprepared(err)
	}
	row, err = ask(ctx, t.conn.PgConn, `SELECT run_id, fence FROM quorate_effect WHERE job = $1 AND due = $2 AND step = $3`, t.job, t.due, t.step)
	if err != nil {
		return nil, err
	}
	if row == nil { // visible to the constraint and not to us: a stricter isolation level
		return nil, errors.New("another run is doing the same step of the same tick")
	}
	var m marker
	m.run, _ = strconv.ParseInt(row[0], 10, 64)
	fence, _ := strconv.ParseInt(row[1], 10, 64)
	m.fence = jobs.Fence(fence)
	return &m, nil
}

// clear ends the session of an older run that is in our way, which its replica may
// be too frozen to end and the server too busy with to time out.
func (t *postgresTx) clear(ctx context.Context) {
	conn, err := pgconn.ConnectConfig(ctx, t.db.config)
	if err != nil {
		return
	}
	defer hangUp(conn)
	_, _ = ask(ctx, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE pid = ANY (pg_blocking_pids($1)) AND substring(application_name FROM '^quorate fence ([0-9]+) run')::bigint < $2`,
		int64(t.conn.PID()), t.fence)
}

func (t *postgresTx) exec(ctx context.Context, s statement, run jobs.Run, show *table) (int64, error) {
	values := make([][]byte, len(s.params))
	for i, name := range s.params {
		values[i] = asText(run.Value(name))
	}
	reader := t.conn.ExecParams(ctx, s.text, values, nil, nil, nil)
	var names []string
	for _, f := range reader.FieldDescriptions() {
		names = append(names, f.Name)
	}
	show.header(names)
	for reader.NextRow() {
		show.row(reader.Values())
	}
	if len(names) > 0 {
		show.end()
	}
	tag, err := reader.Close()
	if err != nil && t.loose && t.conn.IsClosed() {
		err = unknown("it was begun, and the server did not say how it ended: %w", err)
	}
	if err != nil || tag.Select() {
		return 0, err
	}
	if t.conn.TxStatus() != 'T' && !t.loose {
		return 0, unknown("%w", errEscaped)
	}
	return tag.RowsAffected(), nil
}

func (t *postgresTx) commit(ctx context.Context) error {
	results, err := t.conn.Exec(ctx, "COMMIT").ReadAll()
	if err == nil && results[0].CommandTag.String() != "COMMIT" {
		return fmt.Errorf("the server answered %s", results[0].CommandTag)
	}
	t.committed = err == nil
	return err
}

// landed asks the server's own record of transactions.
func (t *postgresTx) landed(ctx context.Context) (bool, error) {
	conn, err := pgconn.ConnectConfig(ctx, t.db.config)
	if err != nil {
		return false, err
	}
	defer hangUp(conn)
	row, err := ask(ctx, conn, "SELECT pg_xact_status($1::xid8)", t.xid)
	if err != nil {
		return false, err
	}
	switch row[0] {
	case "committed":
		return true, nil
	case "aborted":
		return false, nil
	case "in progress":
		// Its session waits for a COMMIT that was lost on the way, or has yet to
		// come. Ending it decides the matter, one way or the other.
		_, err = ask(ctx, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE pid = $1 AND backend_xid = $2::xid8::xid`, int64(t.conn.PID()), t.xid)
		return false, errors.Join(errUndecided, err)
	}
	return false, fmt.Errorf("the server has forgotten transaction %s", t.xid)
}

// abort needs no ROLLBACK: the server rolls back when the connection closes, and
// nothing can have left the transaction before.
func (t *postgresTx) abort(context.Context) error { return nil }

func (t *postgresTx) close() {
	if !t.open {
		return
	}
	t.open = false
	defer func() { <-t.db.room }()
	if !t.committed || !t.conn.discard() {
		hangUp(t.conn.PgConn)
		return
	}
	t.db.warm <- t.conn
	if t.db.closed.Load() {
		t.db.close() // it came too late to be seen
	}
}
