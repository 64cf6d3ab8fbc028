package postgres_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"quorate/internal/testenv"
	"quorate/migrations"
	"quorate/store/postgres"
)

const childURL = "QUORATE_TEST_MIGRATE_URL"

// TestMain is one of the processes of TestFiveProcesses where it is told so.
func TestMain(m *testing.M) {
	url := os.Getenv(childURL)
	if url == "" {
		os.Exit(m.Run())
	}
	if err := migrateAs(url); err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
}

func migrateAs(url string) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	s, err := postgres.Open(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Migrate(ctx)
}

func TestFiveProcessesMigrateAnEmptyDatabaseAtOnce(t *testing.T) {
	url := testenv.Postgres(t)
	var wait sync.WaitGroup
	for range 5 {
		wait.Go(func() {
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), childURL+"="+url)
			var said bytes.Buffer
			child.Stderr = &said
			if err := child.Run(); err != nil {
				t.Errorf("a process failed: %v: %s", err, said.String())
			}
		})
	}
	wait.Wait()
	status, err := opened(t, url).Status(t.Context())
	if err != nil || status.Applied != status.Known {
		t.Errorf("status %+v, %v", status, err)
	}
}

func TestAMigrationThatWasChangedIsNamed(t *testing.T) {
	s, conn := beneath(t)
	run(t, conn, `UPDATE quorate.migrations SET checksum = 'another' WHERE number = 2`)
	err := s.Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "0002_claim.sql") || !strings.Contains(err.Error(), "changed") {
		t.Errorf("migrate says: %v", err)
	}
}

func TestAStoreThatIsNewerSaysSo(t *testing.T) {
	s, conn := beneath(t)
	files, err := migrations.Files("postgres")
	if err != nil {
		t.Fatal(err)
	}
	run(t, conn, `INSERT INTO quorate.migrations (number, name, checksum) VALUES ($1, 'next.sql', 'x')`, len(files)+1)
	err = s.Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "newer than this binary") || !strings.Contains(err.Error(), "next.sql") {
		t.Errorf("migrate says: %v", err)
	}
	if status, err := s.Status(t.Context()); err != nil || status.Applied != len(files)+1 || status.Known != len(files) {
		t.Errorf("status %+v, %v", status, err)
	}
}

func TestAMigrationThatFailsLeavesNothing(t *testing.T) {
	url := testenv.Postgres(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// Someone else's table is in the way of the first file's last tables.
	run(t, conn, `CREATE SCHEMA quorate; CREATE TABLE quorate.locks (x int)`)
	s := opened(t, url)
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "0001_runs.sql") {
		t.Errorf("migrate says: %v", err)
	}
	if there := value[bool](t, conn, `SELECT to_regclass('quorate.runs') IS NOT NULL`); there {
		t.Error("half of a migration is there")
	}
	run(t, conn, `DROP TABLE quorate.locks`)
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("with the obstacle gone, migrate says: %v", err)
	}
}
