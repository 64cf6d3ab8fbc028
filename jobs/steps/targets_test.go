package steps_test

import (
	"strings"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
)

func TestNoErrorOfATargetShowsItsPassword(t *testing.T) {
	t.Parallel()
	const canary = "s3cr3t"
	for _, url := range []string{
		"postgres://u:" + canary + "@%zz/db", "postgres://u:" + canary + "@h:port/db", "postgres://u:" + canary + "@h/db?sslmode=nosuch",
		"postgres://u:" + canary + "@h:1:2/db", "postgres://u:a b" + canary + "@h/db", "postgres://u:" + canary + "@h/db?pool=" + canary + "%",
		"mysql://u:" + canary + "@h:port/db", "mysql://u:" + canary + "@h/db?tls=nosuch", "mysql://u:" + canary + "@h/", "mysql://u:" + canary + "@h/db?timeout=x",
		"mysql://u:" + canary + "%40%2F@h/db?timeout=x", "oracle://u:" + canary + "@h/db", canary, "u:" + canary + "@tcp(h)/db", "",
	} {
		_, err := steps.Open(t.Context(), map[string]jobs.Secret{"shop": jobs.Secret(url)})
		if err == nil {
			t.Errorf("%q was taken", url)
			continue
		}
		if strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), `target "shop"`) {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, url := range []string{"postgres://u:" + canary + "@127.0.0.1:1/db", "mysql://u:" + canary + "@127.0.0.1:1/db", "sqlite:/no/such/folder/x.db"} {
		exec := executor(t, url)
		if err := exec.Targets.Check(t.Context(), "shop"); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("check: %v", err)
		}
		got := exec.Execute(t.Context(), holdOf(1, 7, sqlStep(insert)))
		want(t, got, jobs.Failed, jobs.ReasonStep, `target "shop"`)
		if strings.Contains(got.Error, canary) {
			t.Error(got.Error)
		}
	}
}

func TestTargetThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	var none steps.Executor
	want(t, none.Execute(t.Context(), holdOf(1, 7, sqlStep(insert))), jobs.Failed, jobs.ReasonStep, `target "shop" is not defined: add [targets.shop]`)
	if err := none.Targets.CheckStep(sqlStep(insert)); err == nil {
		t.Error("a step of no target passes")
	}
	none.Targets.Close()
}

func TestOpenDoesNotDial(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	targets, err := steps.Open(t.Context(), map[string]jobs.Secret{
		"a": "postgres://u@192.0.2.1/db", "b": "mysql://u@192.0.2.1/db", "c": "mariadb://u@h/db?socket=/run/x.sock", "d": "sqlite:no/such.db",
	})
	if err != nil || time.Since(begun) > time.Second {
		t.Fatalf("after %s: %v", time.Since(begun), err)
	}
	targets.Close()
}

func TestStepIsCheckedInTheWordsOfItsTarget(t *testing.T) {
	t.Parallel()
	targets, err := steps.Open(t.Context(), map[string]jobs.Secret{"pg": "postgres://h/db", "my": "mysql://h/db", "lite": "sqlite:x.db"})
	if err != nil {
		t.Fatal(err)
	}
	defer targets.Close()
	for _, c := range []struct{ target, sql, wrong string }{
		{"pg", "CREATE TABLE t (n int)", ""},
		{"lite", "CREATE TABLE t (n int)", ""},
		{"my", "CREATE TABLE t (n int)", "commits by itself"},
		{"my", "/*! COMMIT */ SELECT 1", "write it out"},
		{"my", "SET autocommit = 1", "SET"},
		{"my", "TRUNCATE t", "commits by itself"},
		{"my", "create temporary table t (n int)", ""},
		{"lite", "PRAGMA foreign_keys = off", "cannot live"},
		{"pg", "ALTER SYSTEM SET x = 1", "cannot live"},
		{"pg", "COPY t FROM STDIN", "nobody at this end"},
		{"pg", "REFRESH MATERIALIZED VIEW CONCURRENTLY v", ""},
	} {
		err := targets.CheckStep(jobs.Step{Target: c.target, SQL: jobs.Strings{c.sql}})
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s on %s: %v, want %q", c.sql, c.target, err, c.wrong)
		}
	}
}
