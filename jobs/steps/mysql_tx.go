package steps

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"quorate/jobs"
)

type mysqlTx struct {
	effect
	terms
	db     *mysql
	conn   *sql.Conn
	id     int64
	marked bool
}

func (m *mysql) begin(ctx context.Context, e effect, how terms) (transaction, error) {
	conn, err := m.steps.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &mysqlTx{effect: e, terms: how, db: m, conn: conn}
	err = t.begin(ctx)
	if isMySQL(err, mysqlNoTable) {
		err = ErrUnprepared
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *mysqlTx) begin(ctx context.Context) error {
	var version, mode string
	var fences int
	err := t.conn.QueryRowContext(ctx, `SELECT connection_id(), version(), @@sql_mode,
		(SELECT count(*) FROM quorate_fence WHERE lock_name = ?)`, t.lock).Scan(&t.id, &version, &mode, &fences)
	if err == nil && strings.Contains(mode, "NO_BACKSLASH_ESCAPES") {
		err = errors.New("its sql_mode has NO_BACKSLASH_ESCAPES, under which statements read differently: set sql_mode in the target's url")
	}
	if err == nil && fences == 0 {
		// By itself, and not in the transaction: whoever waits for a row that is then
		// rolled back holds the gap where it was, and two such waiters a deadlock.
		_, err = t.conn.ExecContext(ctx, "INSERT IGNORE INTO quorate_fence (lock_name, fence) VALUES (?, 0)", t.lock)
	}
	if err != nil {
		return err
	}
	// By this name a newer run finds us. A server that does not give it, as some
	// clusters do not, has the newer run wait for our statement to time out.
	_, err = t.conn.ExecContext(ctx, "DO get_lock(?, 0)", t.label(t.fence))
	if my := (*driver.MySQLError)(nil); err != nil && !errors.As(err, &my) {
		return err
	}
	seconds := func(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
	settings := fmt.Sprintf("SET SESSION wait_timeout = %d", seconds(t.patience))
	if limit := statementLimit(ctx); limit > 0 {
		settings += fmt.Sprintf(", innodb_lock_wait_timeout = %d", min(seconds(limit), 1<<20))
		if strings.Contains(version, "MariaDB") {
			settings += fmt.Sprintf(", max_statement_time = %.3f", limit.Seconds())
		}
	}
	begin := []string{settings}
	if t.isolation != "" {
		begin = append(begin, "SET SESSION TRANSACTION ISOLATION LEVEL "+t.isolation)
	}
	if !t.loose {
		begin = append(begin, "START TRANSACTION")
	}
	for _, sql := range begin {
		if _, err := t.conn.ExecContext(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// guarded runs something that the context's end stops on the server. It waits for
// the killer, so that a late kill cannot hit what the connection does next. That
// the context has ended is the result then: a killed statement may well return no
// error at all.
func (t *mysqlTx) guarded(ctx context.Context, do func(context.Context) error) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		kill, cancel := context.WithTimeout(work, cancelWait)
		defer cancel()
		if _, err := t.db.control.ExecContext(kill, fmt.Sprintf("KILL QUERY %d", t.id)); err != nil {
			cut() // nobody there to stop it; drop the line
			return
		}
		timer := time.AfterFunc(cancelWait, cut)
		context.AfterFunc(work, func() { timer.Stop() })
	})
	err := do(work)
	if stop() {
		return err
	}
	<-killed
	return because(ctx, err)
}

func (t *mysqlTx) guard(ctx context.Context) (earlier *marker, err error) {
	err = t.guarded(ctx, func(ctx context.Context) error {
		err := overtaking(ctx, t.patience, t.clear, func() error {
			_, err := t.conn.ExecContext(ctx, "UPDATE quorate_fence SET fence = greatest(fence, ?) WHERE lock_name = ?", int64(t.fence), t.lock)
			return err
		})
		if err != nil {
			return err
		}
		var seen jobs.Fence
		if err := t.conn.QueryRowContext(ctx, `SELECT fence FROM quorate_fence WHERE lock_name = ? FOR UPDATE`, t.lock).Scan(&seen); err != nil {
			return err
		}
		if seen > t.fence {
			return &fencedError{t.lock, t.fence, seen}
		}
		done, err := t.conn.ExecContext(ctx, `INSERT INTO quorate_effect (job, due, step, fence, run_id) VALUES (?, ?, ?, ?, ?)
			ON DUPLICATE KEY UPDATE run_id = run_id`, t.job, t.due, t.step, int64(t.fence), t.run)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n > 0 {
			t.marked = n > 0
			if err == nil {
				_, err = t.conn.ExecContext(ctx, "SAVEPOINT quorate")
			}
			return err
		}
		earlier, err = mysqlMarker(ctx, t.conn, t.effect)
		return err
	})
	if isMySQL(err, mysqlNoTable) {
		return nil, ErrUnprepared
	}
	return earlier, err
}

// label names the connection of the run that has this fence of our lock. Such names
// are the server's, not a database's.
func (t *mysqlTx) label(fence jobs.Fence) string {
	sum := sha256.Sum256([]byte(t.db.config.DBName + "\x00" + t.lock))
	return fmt.Sprintf("quorate %x %d", sum[:8], fence)
}

// clear ends the connection of an older run that is in our way, which its replica
// may be too frozen to end and the server too busy with to time out. Whose it is
// stands in the fence's row, for those who look at what is not committed.
func (t *mysqlTx) clear(ctx context.Context) {
	conn, err := t.db.control.Conn(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"); err != nil {
		return
	}
	var holder jobs.Fence
	err = conn.QueryRowContext(ctx, "SELECT fence FROM quorate_fence WHERE lock_name = ?", t.lock).Scan(&holder)
	if err != nil || holder >= t.fence {
		return
	}
	var id sql.NullInt64
	if conn.QueryRowContext(ctx, "SELECT is_used_lock(?)", t.label(holder)).Scan(&id) == nil && id.Valid {
		_, _ = conn.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", id.Int64))
	}
}

// mysqlMarker reads a marker, and waits for whoever is about to write or undo it.
func mysqlMarker(ctx context.Context, conn *sql.Conn, e effect) (*marker, error) {
	var m marker
	err := conn.QueryRowContext(ctx, `SELECT run_id, fence FROM quorate_effect
		WHERE job = ? AND due = ? AND step = ? FOR UPDATE`, e.job, e.due, e.step).Scan(&m.run, &m.fence)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &m, err
}

func isMySQL(err error, number uint16) bool {
	var my *driver.MySQLError
	return errors.As(err, &my) && my.Number == number
}

func (t *mysqlTx) exec(ctx context.Context, s statement, run jobs.Run, show *table) (changed int64, err error) {
	args := make([]any, len(s.params))
	for i, name := range s.params {
		args[i] = run.Value(name)
	}
	err = t.guarded(ctx, func(ctx context.Context) error {
		if !t.loose {
			if err := t.transactionless(ctx, s.text); err != nil {
				return err
			}
		}
		rows, err := t.conn.QueryContext(ctx, s.text, args...)
		if err != nil {
			return err
		}
		returned, err := showRows(rows, show)
		if err != nil {
			return err
		}
		if s.returning { // row_count() does not know of these
			changed = returned
			return nil
		}
		return t.conn.QueryRowContext(ctx, "SELECT greatest(row_count(), 0)").Scan(&changed)
	})
	if my := (*driver.MySQLError)(nil); err != nil && t.loose && !errors.As(err, &my) {
		err = unknown("it was begun, and the server did not say how it ended: %w", err)
	}
	return changed, err
}

// showRows reads an answer to its end, all result sets of it, and counts its rows.
func showRows(rows *sql.Rows, show *table) (n int64, err error) {
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		names, err := rows.Columns()
		if err != nil {
			return n, err
		}
		show.header(names)
		cells := make([]sql.RawBytes, len(names))
		into, raw := make([]any, len(names)), make([][]byte, len(names))
		for i := range cells {
			into[i] = &cells[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return n, err
			}
			n++
			for i := range cells {
				raw[i] = cells[i]
			}
			show.row(raw)
		}
		if len(names) > 0 {
			show.end()
		}
	}
	return n, rows.Err()
}

func (t *mysqlTx) commit(ctx context.Context) error {
	_, err := t.conn.ExecContext(ctx, "RELEASE SAVEPOINT quorate")
	if isMySQL(err, mysqlNoSave) {
		return unknown("%w", errEscaped)
	}
	if err != nil {
		return err
	}
	_, err = t.conn.ExecContext(ctx, "COMMIT")
	return err
}

// landed asks for the marker, in a way that waits for a transaction that holds it.
func (t *mysqlTx) landed(ctx context.Context) (bool, error) {
	conn, err := t.db.control.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	for _, sql := range []string{"SET SESSION innodb_lock_wait_timeout = 2", "START TRANSACTION"} {
		if _, err := conn.ExecContext(ctx, sql); err != nil {
			return false, err
		}
	}
	m, err := mysqlMarker(ctx, conn, t.effect)
	return err == nil && m != nil && *m == t.marker, err
}

func (t *mysqlTx) abort(ctx context.Context) error {
	_, err := t.conn.ExecContext(ctx, "ROLLBACK")
	if err == nil {
		var level, message string
		var code int
		if t.conn.QueryRowContext(ctx, "SHOW WARNINGS").Scan(&level, &code, &message) == nil && code == mysqlNoRestore {
			return errors.New("a table without transactions (not InnoDB) was changed and could not be rolled back: ALTER TABLE … ENGINE = InnoDB")
		}
	} else {
		t.close()
	}
	if !t.marked {
		return nil
	}
	if landed, err := t.landed(ctx); err == nil && landed {
		return errEscaped
	}
	return nil
}

func (t *mysqlTx) close() { t.conn.Close() } // with no idle connections kept, the line is cut
