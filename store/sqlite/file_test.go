package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
	"quorate/store/sqlite"
	"quorate/store/storetest"
)

const childPath = "QUORATE_TEST_SQLITE_PATH"

// TestMain is one of the processes of TestManyProcesses where it is told so.
func TestMain(m *testing.M) {
	path := os.Getenv(childPath)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := workAs(path); err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
}

const ticks = 40

func claim(n int) store.Claim {
	due := time.Date(2026, 11, 21, 8, n, 0, 0, time.UTC)
	return store.Claim{
		Tick:    jobs.Tick{Job: &jobs.Job{Name: "restock", Lock: "inventory"}, Due: due, Attempt: 1, Trigger: jobs.TriggerSchedule},
		Replica: fmt.Sprint("process ", os.Getpid()), Revision: "r1", Lease: time.Minute,
	}
}

// workAs migrates and works off the ticks that it gets, each until it has a row.
func workAs(path string) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	s, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	for n := 0; n < ticks; {
		run, err := s.Claim(ctx, claim(n))
		switch {
		case err == nil:
			_, err = s.Finish(ctx, run, jobs.Outcome{Status: jobs.Succeeded})
		case errors.Is(err, store.ErrOverlap):
			continue
		case errors.Is(err, store.ErrClaimed):
			err = nil
		}
		if err != nil {
			return err
		}
		n++
	}
	return nil
}

func TestManyProcessesShareAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quorate.db")
	var wait sync.WaitGroup
	for range 5 {
		wait.Go(func() {
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), childPath+"="+path)
			var said bytes.Buffer
			child.Stderr = &said
			if err := child.Run(); err != nil {
				t.Errorf("a process failed: %v: %s", err, said.String())
			}
		})
	}
	wait.Wait()
	runs, err := opened(t, path).Runs(t.Context(), store.Filter{Status: jobs.Succeeded, Limit: 1000})
	if err != nil || len(runs) != ticks {
		t.Fatalf("%d runs succeeded (%v), want %d", len(runs), err, ticks)
	}
	for i, run := range runs { // newest first
		if i > 0 && run.Fence >= runs[i-1].Fence {
			t.Errorf("the fence %d was granted before %d", run.Fence, runs[i-1].Fence)
		}
	}
}

func TestAFileMayHaveAnyName(t *testing.T) {
	for _, name := range []string{"plain.db", "a b?c#d%20e&f=g.db", "grüße 世界.db", "file:x.db"} {
		path := filepath.Join(t.TempDir(), name)
		s := opened(t, path)
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, none := range []string{"", ":memory:"} {
		if _, err := sqlite.Open(t.Context(), none); err == nil {
			t.Errorf("%q was opened", none)
		}
	}
}

func TestAFileThatCannotBeOpenedIsAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "quorate.db")
	_, err := sqlite.Open(t.Context(), path)
	if !errors.Is(err, store.ErrAway) || !strings.Contains(err.Error(), path) {
		t.Errorf("open says: %v", err)
	}
}

// raw opens the file beneath a store.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestAFileThatAnotherProcessKeepsIsAwayWithinTheDeadline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quorate.db")
	s := opened(t, path)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	other, err := raw(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	reads := map[string]bool{"Run": true, "Runs": true, "Follow": true, "Latest": true, "Dues": true, "Replicas": true, "Now": true, "Status": true, "Active": true}
	for name, call := range storetest.Calls(s) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		began := time.Now()
		err := call(ctx)
		cancel()
		if reads[name] == errors.Is(err, store.ErrAway) {
			t.Errorf("%s: reading goes on, writing is away; got %v", name, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s took %s of 200ms", name, took)
		}
	}
	if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), claim(0)); err != nil {
		t.Errorf("the other process is gone, and claim says: %v", err)
	}
}

// The promises hold for whoever writes, not for our own code alone.
func TestTheSchemaRefusesWhatBreaksAPromise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quorate.db")
	s := opened(t, path)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	done, err := s.Claim(t.Context(), claim(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(t.Context(), done, jobs.Outcome{Status: jobs.Succeeded, Steps: []jobs.StepRun{
		{Name: "only", Kind: "sql", Status: jobs.Succeeded, Output: "x"}}}); err != nil {
		t.Fatal(err)
	}
	running, err := s.Claim(t.Context(), claim(1))
	if err != nil {
		t.Fatal(err)
	}
	db := raw(t, path)
	insert := `INSERT INTO runs (job, due, attempt, "trigger", lock, replica, revision, status, started, finished, lease_until)
		VALUES ('x', '2026-11-21T08:00:00.000000Z', 1, 'manual', 'inventory', 'r', 'v', `
	for name, query := range map[string]string{
		"another end of a run":            fmt.Sprintf(`UPDATE runs SET status = 'failed' WHERE id = %d`, done.ID),
		"a run that runs again":           fmt.Sprintf(`UPDATE runs SET status = 'running', finished = NULL WHERE id = %d`, done.ID),
		"another tick for a run":          fmt.Sprintf(`UPDATE runs SET job = 'x' WHERE id = %d`, running.ID),
		"another id for a run":            fmt.Sprintf(`UPDATE runs SET id = 99 WHERE id = %d`, running.ID),
		"a running run that has finished": fmt.Sprintf(`UPDATE runs SET finished = 'x' WHERE id = %d`, running.ID),
		"another step":                    `UPDATE steps SET status = 'failed'`,
		"another output":                  `UPDATE output SET text = 'y'`,
		"a second running run of a lock":  insert + `'running', 'x', NULL, 'x')`,
		"a second row of a tick": fmt.Sprintf(`INSERT INTO runs (job, due, attempt, "trigger", status, lock, replica, revision, finished)
			SELECT job, due, attempt, "trigger", 'missed', lock, replica, revision, 'x' FROM runs WHERE id = %d`, done.ID),
		"a run without a start":       insert + `'succeeded', NULL, 'x', 'x')`,
		"a missed tick that began":    insert + `'missed', 'x', 'x', 'x')`,
		"an unknown status":           insert + `'great', 'x', 'x', 'x')`,
		"an output beyond the cap":    fmt.Sprintf(`INSERT INTO output VALUES (%d, 7, '%s')`, done.ID, strings.Repeat("x", 65537)),
		"a due time of another width": strings.Replace(insert, ".000000Z", "Z", 1) + `'succeeded', 'x', 'x', 'x')`,
	} {
		if _, err := db.ExecContext(t.Context(), query); err == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
	// The same inserts are fine where nothing is in the way: they were refused for
	// the reason that is meant.
	for _, query := range []string{
		fmt.Sprintf(`UPDATE runs SET status = 'failed', finished = 'x' WHERE id = %d`, running.ID),
		insert + `'running', 'x', NULL, 'x')`,
		fmt.Sprintf(`INSERT INTO output VALUES (%d, 7, '%s')`, done.ID, strings.Repeat("x", 65536)),
	} {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Errorf("%.60s: %v", query, err)
		}
	}
}

func TestAStoreThatWasChangedOrIsNewerSaysSo(t *testing.T) {
	for query, says := range map[string][]string{
		`UPDATE migrations SET checksum = 'another' WHERE number = 1`:                                    {"0001_runs.sql", "changed"},
		`INSERT INTO migrations SELECT max(number) + 1, 'next.sql', 'x', 'x' FROM migrations`:            {"next.sql", "newer than this binary"},
		`UPDATE migrations SET number = number + 10 WHERE number = (SELECT max(number) FROM migrations)`: {"edited"},
	} {
		path := filepath.Join(t.TempDir(), "quorate.db")
		s := opened(t, path)
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := raw(t, path).ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
		err := s.Migrate(t.Context())
		for _, part := range says {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("after %s, migrate says: %v, want %q in it", query, err, part)
			}
		}
	}
}

func TestATableThatIsNotThereAsksForMigrate(t *testing.T) {
	s := open(t)
	if _, err := s.Claim(t.Context(), claim(0)); err == nil || !strings.Contains(err.Error(), "quorate migrate") {
		t.Errorf("claim says: %v", err)
	}
	if status, err := s.Status(t.Context()); err != nil || status.Applied != 0 || status.Known == 0 {
		t.Errorf("status %+v, %v", status, err)
	}
}
