package steps

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"quorate/jobs"
	"quorate/migrations"
)

// SQLite is a file that this process writes itself. One writer at a time is all
// that it has, so the lock of the file does what row locks do elsewhere.
type sqlite struct {
	path string
	db   *sql.DB
}

// busyPause is how long to wait before asking again for a file that is locked.
const busyPause = 10 * time.Millisecond

func openSQLite(path string) (database, error) {
	switch {
	case path == "":
		return nil, errors.New("the url names no file: want sqlite:path")
	case strings.Contains(path, ":memory:"):
		return nil, errors.New("a database in memory would be gone after each step: want sqlite:path of a file")
	}
	db, err := openFile(path, "rw")
	return &sqlite{path, db}, err
}

// openFile never creates a file unless the mode says so: a misspelt path would
// otherwise be a new, empty database.
func openFile(path, mode string) (*sql.DB, error) {
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?mode=" + mode
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(-1)
	return db, nil
}

func (l *sqlite) rules() *dialect { return sqliteDialect }
func (l *sqlite) close()          { l.db.Close() }

func (l *sqlite) prepare(ctx context.Context) error {
	tables, err := migrations.Target("sqlite")
	if err != nil {
		return err
	}
	db, err := openFile(l.path, "rwc")
	if err != nil {
		return err
	}
	defer db.Close()
	return patient(ctx, func() error {
		_, err := db.ExecContext(ctx, tables)
		return err
	})
}

func (l *sqlite) check(ctx context.Context) error {
	var found int
	err := patient(ctx, func() error {
		return l.db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema
			WHERE type = 'table' AND name IN ('quorate_fence', 'quorate_effect')`).Scan(&found)
	})
	if err == nil && found < 2 {
		return ErrUnprepared
	}
	return err
}

// patient repeats what found the file locked until the context ends.
func patient(ctx context.Context, do func() error) error {
	for {
		err := do()
		var lite *driver.Error
		if !errors.As(err, &lite) || lite.Code()&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-ctx.Done():
			return because(ctx, err)
		case <-time.After(busyPause):
		}
	}
}

type sqliteTx struct {
	effect
	db   *sqlite
	conn *sql.Conn
}

func (l *sqlite) begin(ctx context.Context, e effect, how terms) (transaction, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &sqliteTx{e, l, conn}
	if how.loose {
		return t, nil
	}
	err = patient(ctx, func() error {
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		return err
	})
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *sqliteTx) guard(ctx context.Context) (*marker, error) {
	earlier, err := t.raise(ctx)
	if err != nil && strings.Contains(err.Error(), "no such table: quorate_") {
		return nil, ErrUnprepared
	}
	return earlier, err
}

func (t *sqliteTx) raise(ctx context.Context) (*marker, error) {
	var seen jobs.Fence
	err := t.conn.QueryRowContext(ctx, `INSERT INTO quorate_fence (lock_name, fence) VALUES (?, ?)
		ON CONFLICT (lock_name) DO UPDATE SET fence = max(fence, excluded.fence)
		RETURNING fence`, t.lock, int64(t.fence)).Scan(&seen)
	if err != nil {
		return nil, err
	}
	if seen > t.fence {
		return nil, &fencedError{t.lock, t.fence, seen}
	}
	earlier, err := t.earlier(ctx, t.conn)
	if earlier != nil || err != nil {
		return earlier, err
	}
	_, err = t.conn.ExecContext(ctx, `INSERT INTO quorate_effect (job, due, step, fence, run_id) VALUES (?, ?, ?, ?, ?)`,
		t.job, instant(t.due), t.step, int64(t.fence), t.run)
	return nil, err
}

func (t *sqliteTx) earlier(ctx context.Context, conn *sql.Conn) (*marker, error) {
	var m marker
	err := conn.QueryRowContext(ctx, `SELECT run_id, fence FROM quorate_effect WHERE job = ? AND due = ? AND step = ?`,
		t.job, instant(t.due), t.step).Scan(&m.run, &m.fence)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &m, err
}

// instant is how a time is kept in a database that has no type for it.
func instant(t time.Time) string { return t.Format(time.RFC3339Nano) }

func (t *sqliteTx) exec(ctx context.Context, s statement, run jobs.Run, show *table) (int64, error) {
	args := make([]any, len(s.params))
	for i, name := range s.params {
		args[i] = run.Value(name)
		if due, ok := args[i].(time.Time); ok {
			args[i] = instant(due)
		}
	}
	before, _, err := t.changes(ctx)
	if err != nil {
		return 0, err
	}
	// Only a statement without a transaction can find the file locked still.
	err = patient(ctx, func() error {
		rows, err := t.conn.QueryContext(ctx, s.text, args...)
		if err == nil {
			_, err = showRows(rows, show)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	after, latest, err := t.changes(ctx)
	if after == before { // the latest change was an earlier statement's
		latest = 0
	}
	return latest, err
}

// changes counts the rows changed so far, triggers included, and those that the
// latest statement that changes rows has changed itself.
func (t *sqliteTx) changes(ctx context.Context) (total, latest int64, err error) {
	err = t.conn.QueryRowContext(ctx, "SELECT total_changes(), changes()").Scan(&total, &latest)
	return total, latest, err
}

// commit may find readers in the way, who hold up a COMMIT and do not undo it.
func (t *sqliteTx) commit(ctx context.Context) error {
	return patient(ctx, func() error {
		_, err := t.conn.ExecContext(ctx, "COMMIT")
		return err
	})
}

func (t *sqliteTx) landed(ctx context.Context) (bool, error) {
	conn, err := t.db.db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	m, err := t.earlier(ctx, conn)
	return err == nil && m != nil && *m == t.marker, err
}

func (t *sqliteTx) abort(context.Context) error { return nil }
func (t *sqliteTx) close()                      { t.conn.Close() } // rolls back: no idle connections are kept
