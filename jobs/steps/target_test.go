package steps_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"quorate/internal/testenv"
	"quorate/jobs"
	"quorate/jobs/steps"
)

// A target is a database that a test writes to, and looks into behind our back.
type target struct {
	kind string // postgres, mysql, sqlite
	url  string
	exec steps.Executor
}

var due = time.Date(2026, 11, 21, 8, 0, 0, 123456000, time.UTC)

// eachTarget runs a test on every kind of target that there is, with a table that
// counts the effects.
func eachTarget(t *testing.T, test func(t *testing.T, db *target)) {
	for _, kind := range []string{"postgres", "mysql", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newTarget(t, kind))
		})
	}
}

func newTarget(t *testing.T, kind string) *target {
	t.Helper()
	db := &target{kind: kind}
	switch kind {
	case "postgres":
		db.url = testenv.Postgres(t)
	case "mysql":
		db.url = testenv.MariaDB(t)
	case "sqlite":
		db.url = "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	}
	db.exec = executor(t, db.url)
	if err := db.exec.Targets.Prepare(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	db.do(t, "CREATE TABLE effects (who varchar(100))")
	return db
}

func executor(t *testing.T, url string) steps.Executor {
	t.Helper()
	targets, err := steps.Open(t.Context(), map[string]jobs.Secret{"shop": jobs.Secret(url)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(targets.Close)
	return steps.Executor{Targets: targets}
}

// do runs a statement on a connection of the test's own, and returns the first
// value of its answer.
func (db *target) do(t *testing.T, statement string) string {
	t.Helper()
	if db.kind == "postgres" {
		conn, err := pgconn.Connect(context.Background(), db.url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		results, err := conn.Exec(context.Background(), statement).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		if last := results[len(results)-1]; len(last.Rows) > 0 {
			return string(last.Rows[0][0])
		}
		return ""
	}
	driver, dsn := "sqlite", strings.TrimPrefix(db.url, "sqlite:")+"?_pragma=busy_timeout(5000)"
	if db.kind == "mysql" {
		u, err := url.Parse(db.url)
		if err != nil {
			t.Fatal(err)
		}
		driver, dsn = "mysql", fmt.Sprintf("%s@tcp(%s)%s", u.User, u.Host, u.Path)
	}
	conn, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rows, err := conn.Query(statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	var value string
	if rows.Next() {
		if err := rows.Scan(&value); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return value
}

func (db *target) effects(t *testing.T) string {
	t.Helper()
	return db.do(t, "SELECT count(*) FROM effects")
}

func (db *target) run(t *testing.T, h steps.Hold) jobs.Outcome {
	t.Helper()
	return db.exec.Execute(t.Context(), h)
}

// holdOf is a run of a job of these steps under a lease that does not end.
func holdOf(run int64, fence jobs.Fence, list ...jobs.Step) steps.Hold {
	for i := range list {
		if list[i].Name == "" {
			list[i].Name = fmt.Sprintf("step%d", i+1)
		}
	}
	return steps.Hold{
		Job:      &jobs.Job{Name: "restock", Steps: list, Timeout: jobs.Duration(time.Minute)},
		Run:      jobs.Run{ID: run, Job: "restock", Due: due, Attempt: 1, Lock: "inventory", Fence: fence, Replica: "a"},
		Validity: func() time.Duration { return 10 * time.Second },
	}
}

func sqlStep(statements ...string) jobs.Step {
	return jobs.Step{Target: "shop", SQL: statements}
}

const insert = "INSERT INTO effects (who) VALUES ('me')"

func want(t *testing.T, got jobs.Outcome, status jobs.Status, reason jobs.Reason, texts ...string) {
	t.Helper()
	if got.Status != status || got.Reason != reason {
		t.Errorf("outcome %s(%s), want %s(%s): %s", got.Status, got.Reason, status, reason, got.Error)
	}
	for _, text := range texts {
		if !strings.Contains(got.Error, text) {
			t.Errorf("error %q does not say %q", got.Error, text)
		}
	}
}

func wantEffects(t *testing.T, db *target, n string) {
	t.Helper()
	if got := db.effects(t); got != n {
		t.Errorf("%s effects are there, want %s", got, n)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never so: %s", what)
		}
	}
}
