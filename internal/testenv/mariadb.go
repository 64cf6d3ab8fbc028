package testenv

import (
	"context"
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
	var s server
	var err error
	if given := os.Getenv(envMariaDB); given != "" {
		s.url = givenURL(t, envMariaDB, given)
	} else if s, err = mariadb(); err != nil {
		without(t, "mariadb", err)
	}
	name := database()
	if err := mariadbExec(s.url, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("create a database: %v", err)
	}
	t.Cleanup(func() {
		if err := mariadbExec(s.url, "DROP DATABASE "+name); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return s.database(name)
}

func startMariaDB() (server, error) {
	daemon, err1 := find("mariadbd")
	install, err2 := find("mariadb-install-db")
	err := errors.Join(err1, err2)
	if err == nil {
		var s server
		err = tries(func() error {
			s, err = mariadbProcess(daemon, install)
			return err
		})
		if err == nil {
			return s, nil
		}
	}
	s, failed := mariadbContainer()
	if failed != nil {
		return server{}, errors.Join(err, failed)
	}
	return s, nil
}

func mariadbProcess(daemon, install string) (server, error) {
	port, err := freePort()
	if err != nil {
		return server{}, err
	}
	dir, err := os.MkdirTemp("", "quorate-mariadb-")
	if err != nil {
		return server{}, err
	}
	s := server{url: mariadbURL("127.0.0.1:" + port)}
	data := filepath.Join(dir, "data")
	options := []string{"--no-defaults", "--datadir=" + data, "--skip-name-resolve",
		"--innodb-log-file-size=4M", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"}
	if os.Geteuid() == 0 {
		options = append(options, "--user=root") // it refuses root unless told
	}
	users := filepath.Join(dir, "users.sql")
	err = os.WriteFile(users, []byte(mariadbUser(s.url.User)), 0o600)
	if err == nil {
		err = run(dir, nil, install, append(options, "--auth-root-authentication-method=normal", "--skip-test-db")...)
	}
	if err != nil {
		return server{}, errors.Join(err, os.RemoveAll(dir))
	}
	p, err := start(dir, "KILL", nil, daemon, append(options, "--init-file="+users, "--bind-address=127.0.0.1",
		"--port="+port, "--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"))...)
	if err != nil {
		return server{}, errors.Join(err, os.RemoveAll(dir))
	}
	s.body = p
	return s, p.ready(func() error { return mariadbIn(s.url, data) })
}

// mariadbURL returns where and as whom a server of ours is reached. The password
// is made up for each.
func mariadbURL(addr string) *url.URL {
	password := fmt.Sprintf("%016x", random(1<<62))
	return &url.URL{Scheme: "mysql", User: url.UserPassword("quorate", password), Host: addr, Path: "/"}
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
