package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// The one MariaDB of this test binary, for the reasons of postgres.
var mariadb = sync.OnceValues(startMariaDB)

// MariaDB lends a fresh database until the test ends, and returns its URL:
// mysql://user:password@host:port/database.
func MariaDB(t testing.TB) string {
	t.Helper()
	if address := os.Getenv(envMariaDB); address != "" {
		return given(t, envMariaDB, address).lend(t, mariadbExec, "DROP DATABASE %s")
	}
	s, err := mariadb()
	if err != nil {
		without(t, "mariadb", err)
	}
	return s.lend(t, mariadbExec, "DROP DATABASE %s")
}

func startMariaDB() (server, error) {
	return oneOf(func() (server, error) {
		daemon, err1 := find("mariadbd")
		install, err2 := find("mariadb-install-db")
		if err := errors.Join(err1, err2); err != nil {
			return server{}, err
		}
		return tries(func() (server, error) { return mariadbProcess(daemon, install) })
	}, mariadbContainer)
}

func mariadbProcess(daemon, install string) (s server, err error) {
	port, err := freePort()
	if err != nil {
		return s, err
	}
	h, err := newHome("mariadb")
	if err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			h.leave()
		}
	}()
	s.url = mariadbURL("quorate", "127.0.0.1:"+port)
	data, users := filepath.Join(h.dir, "data"), filepath.Join(h.dir, "users.sql")
	options := []string{"--no-defaults", "--datadir=" + data, "--skip-name-resolve",
		"--innodb-log-file-size=4M", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"}
	if os.Geteuid() == 0 {
		options = append(options, "--user=root") // it refuses root unless told
	}
	err = os.WriteFile(users, []byte(mariadbUser(s.url.User)), 0o600)
	if err == nil {
		err = h.run(nil, install, append(options, "--auth-root-authentication-method=normal", "--skip-test-db")...)
	}
	if err != nil {
		return s, err
	}
	p, err := h.start("KILL", nil, daemon, append(options, "--init-file="+users, "--bind-address=127.0.0.1",
		"--port="+port, "--socket="+filepath.Join(h.dir, "socket"), "--pid-file="+filepath.Join(h.dir, "pid"))...)
	if err != nil {
		return s, err
	}
	s.body = p
	return s, p.ready(func() error { return mariadbIn(s.url, data) })
}

// mariadbURL returns where and as whom a server of ours is reached.
func mariadbURL(user, addr string) *url.URL {
	return &url.URL{Scheme: "mysql", User: url.UserPassword(user, rand.Text()), Host: addr, Path: "/"}
}

func mariadbUser(u *url.Userinfo) string {
	password, _ := u.Password()
	return fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO %[1]s@'%%' WITH GRANT OPTION;\n",
		u.Username(), password)
}

// mariadbIn asks the server whether it is the one with its data in dir.
func mariadbIn(u *url.URL, dir string) error {
	return mariadbDo(u, func(ctx context.Context, db *sql.DB) error {
		var data string
		err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&data)
		if err == nil && strings.TrimSuffix(data, "/") != dir {
			err = errors.New("another server has its port")
		}
		return err
	})
}

func mariadbExec(u *url.URL, query string) error {
	return mariadbDo(u, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, query)
		return err
	})
}

func mariadbDo(u *url.URL, do func(context.Context, *sql.DB) error) error {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User = "tcp", u.Host, u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Logger = &mysql.NopLogger{} // refused connections are expected at first
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return do(ctx, db)
}
