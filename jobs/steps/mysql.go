package steps

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"quorate/migrations"
)

// MySQL is MySQL and MariaDB. Three things are different here: a context does not
// stop a statement on the server, so it is killed over a second connection; some
// statements commit by themselves, so a savepoint shows whether the transaction is
// still the one that we began; and tables without transactions cannot roll back,
// which the server tells in a warning.
type mysql struct {
	config  *driver.Config
	steps   *sql.DB // the connections that steps work on
	control *sql.DB // to kill, and to look things up, when those are all taken
}

// What MySQL calls the errors that we tell apart.
const (
	mysqlNoTable   = 1146
	mysqlNoRestore = 1196
	mysqlNoSave    = 1305
)

func openMySQL(u *url.URL) (database, error) {
	query := u.Query()
	socket := query.Get("socket")
	query.Del("socket")
	base := driver.NewConfig()
	base.User, base.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
	base.Passwd, _ = u.User.Password()
	base.Net, base.Addr = "tcp", u.Host
	if socket != "" {
		base.Net, base.Addr = "unix", socket
	}
	// The driver's own reader takes care of ports, TLS and unknown parameters.
	dsn, _, _ := strings.Cut(base.FormatDSN(), "?")
	config, err := driver.ParseDSN(dsn + "?" + query.Encode())
	if err != nil {
		return nil, err
	}
	if config.DBName == "" {
		return nil, errors.New("the url names no database: mysql://user:password@host/database")
	}
	config.Loc, config.ParseTime = time.UTC, false
	config.MultiStatements, config.InterpolateParams, config.AllowAllFiles = false, false, false
	config.Logger = &driver.NopLogger{}
	if config.Timeout == 0 {
		config.Timeout = checkLimit
	}
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["time_zone"] = "'+00:00'" // replicas must agree on what a date is
	m := &mysql{config: config}
	if m.steps, err = m.pool(config, maxConns); err == nil {
		m.control, err = m.pool(config, maxConns)
	}
	return m, err
}

func (m *mysql) pool(config *driver.Config, size int) (*sql.DB, error) {
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(-1)
	return db, nil
}

func (m *mysql) rules() *dialect { return mysqlDialect }

func (m *mysql) close() {
	m.steps.Close()
	m.control.Close()
}

func (m *mysql) prepare(ctx context.Context) error {
	tables, err := migrations.Target("mysql")
	if err != nil {
		return err
	}
	config := m.config.Clone()
	config.MultiStatements = true
	db, err := m.pool(config, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, tables)
	return err
}

func (m *mysql) check(ctx context.Context) error {
	var wrong sql.NullString
	var found int
	err := m.control.QueryRowContext(ctx, `SELECT count(*), group_concat(if(engine = 'InnoDB', NULL, table_name))
		FROM information_schema.tables
		WHERE table_schema = database() AND table_name IN ('quorate_fence', 'quorate_effect')`).Scan(&found, &wrong)
	switch {
	case err != nil:
		return err
	case found < 2:
		return ErrUnprepared
	case wrong.String != "":
		return fmt.Errorf("its %s cannot roll back: ALTER TABLE … ENGINE = InnoDB", wrong.String)
	}
	return nil
}
