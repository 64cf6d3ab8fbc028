package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"quorate/internal/testenv"
	"quorate/jobs"
	"quorate/store/postgres"
)

// beneath opens a migrated store, and a connection for what lies beneath it.
func beneath(t *testing.T) (*postgres.Store, *pgx.Conn) {
	t.Helper()
	url := testenv.Postgres(t)
	s := opened(t, url)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	return s, conn
}

func run(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// The promises hold for whoever writes, not for our own code alone.
func TestTheSchemaRefusesWhatBreaksAPromise(t *testing.T) {
	s, conn := beneath(t)
	done, err := s.Claim(t.Context(), claim("done"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Finish(t.Context(), done, jobs.Outcome{Status: jobs.Succeeded, Steps: []jobs.StepRun{
		{Name: "only", Kind: "sql", Status: jobs.Succeeded, Output: "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	running, err := s.Claim(t.Context(), claim("running"))
	if err != nil {
		t.Fatal(err)
	}
	insert := `INSERT INTO quorate.runs (job, due, attempt, trigger, lock, replica, revision, status, started, finished, lease_until)
		VALUES ('x', '2026-11-21', 1, 'manual', 'running', 'r', 'v', `
	for name, sql := range map[string]string{
		"another end of a run":            fmt.Sprintf(`UPDATE quorate.runs SET status = 'failed' WHERE id = %d`, done.ID),
		"a run that runs again":           fmt.Sprintf(`UPDATE quorate.runs SET status = 'running', finished = NULL WHERE id = %d`, done.ID),
		"another error of a run":          fmt.Sprintf(`UPDATE quorate.runs SET error = 'x' WHERE id = %d`, done.ID),
		"another tick for a run":          fmt.Sprintf(`UPDATE quorate.runs SET job = 'x' WHERE id = %d`, running.ID),
		"another id for a run":            fmt.Sprintf(`UPDATE quorate.runs SET id = 99 WHERE id = %d`, running.ID),
		"a running run that has finished": fmt.Sprintf(`UPDATE quorate.runs SET finished = now() WHERE id = %d`, running.ID),
		"another step":                    `UPDATE quorate.steps SET status = 'failed'`,
		"another output":                  `UPDATE quorate.output SET text = 'y'`,
		"a second running run of a lock":  insert + `'running', now(), NULL, now())`,
		"a second row of a tick":          `INSERT INTO quorate.runs (job, due, attempt, trigger, status, lock, replica, revision, finished) SELECT job, due, attempt, trigger, 'missed', lock, replica, revision, now() FROM quorate.runs`,
		"a run without a start":           insert + `'succeeded', NULL, now(), now())`,
		"a missed tick that began":        insert + `'missed', now(), now(), now())`,
		"an unknown status":               insert + `'great', now(), now(), now())`,
		"an output beyond the cap":        `INSERT INTO quorate.output SELECT run, due, 7, repeat('x', 65537) FROM quorate.steps`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
	if n := value[int](t, conn, `SELECT count(*) FROM quorate.locks WHERE run IS NOT NULL`); n != 1 {
		t.Errorf("%d live runs, want 1", n)
	}
	// The same insert is fine where the lock is free: it was refused for the lock.
	run(t, conn, `UPDATE quorate.runs SET status = 'failed', finished = now() WHERE id = $1`, running.ID)
	run(t, conn, insert+`'running', now(), NULL, now())`)
}

func TestMonthsAreMadeAheadAndTakeWhatTheDefaultHolds(t *testing.T) {
	s, conn := beneath(t)
	// As after a long sleep: no partition for this month, and runs in the default.
	for _, whole := range []string{"runs", "steps", "output"} {
		for ahead := range 3 {
			month := time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day()).AddDate(0, ahead, 0)
			run(t, conn, fmt.Sprintf("DROP TABLE quorate.%s_%s", whole, month.Format("2006_01")))
		}
	}
	done, err := s.Claim(t.Context(), claim("done"))
	if err != nil {
		t.Fatal(err)
	}
	outcome := jobs.Outcome{Status: jobs.Succeeded, Steps: []jobs.StepRun{{Name: "only", Kind: "sql", Status: jobs.Succeeded, Output: "x"}}}
	if done, err = s.Finish(t.Context(), done, outcome); err != nil {
		t.Fatal(err)
	}
	running, err := s.Claim(t.Context(), claim("running"))
	if err != nil {
		t.Fatal(err)
	}
	old := claim("old")
	old.Tick.Due = old.Tick.Due.AddDate(-3, 0, 0)
	if _, err := s.Claim(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	inDefault := `SELECT count(*) FROM quorate.runs_default`
	if n := value[int](t, conn, inDefault); n != 3 {
		t.Fatalf("%d runs in the default partition, want 3", n)
	}

	if _, err := s.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, conn, inDefault); n != 1 {
		t.Errorf("%d runs in the default partition, want only the old one", n)
	}
	if n := value[int](t, conn, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'quorate.runs'::regclass`); n != 4 {
		t.Errorf("%d partitions, want the default and three months", n)
	}
	if got, err := s.Run(t.Context(), done.ID); err != nil || len(got.Steps) != 1 || got.Steps[0].Output != "x" || got.Status != jobs.Succeeded {
		t.Errorf("the run that moved is %+v, %v", got, err)
	}
	if _, err := s.Finish(t.Context(), running, outcome); err != nil {
		t.Errorf("the run that moved while it ran: %v", err)
	}
	if _, err := conn.Exec(t.Context(), `UPDATE quorate.runs SET status = 'failed' WHERE id = $1`, done.ID); err == nil {
		t.Error("a run that moved may be changed")
	}
}

// A reader of history may take hours; nothing else may wait for it.
func TestALongReaderStopsNeitherClaimsNorTheMakingOfMonths(t *testing.T) {
	s, conn := beneath(t)
	run(t, conn, `DROP TABLE quorate.runs_`+time.Now().UTC().Format("2006_01"))
	run(t, conn, `BEGIN; SELECT * FROM quorate.history`)
	began := time.Now()
	if _, err := s.Reap(t.Context()); err != nil {
		t.Fatalf("reap beside a long reader: %v", err)
	}
	if _, err := s.Claim(t.Context(), claim("restock")); err != nil {
		t.Fatalf("claim beside a long reader: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	run(t, conn, `COMMIT`)
	if _, err := s.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, conn, `SELECT count(*) FROM quorate.runs_default`); n != 0 {
		t.Errorf("%d runs are still in the default partition", n)
	}
}
