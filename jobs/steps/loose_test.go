package steps_test

import (
	"strings"
	"testing"
	"time"

	"quorate/jobs"
)

// What cannot be a part of a transaction that the fence guards, by kind of target:
// refused, unless the step does without. Empty: it cannot be tried here.
var transactionless = map[string][]string{
	"postgres": {
		"VACUUM effects", "VACUUM (FULL, ANALYZE) effects", "CREATE INDEX CONCURRENTLY i ON effects (who)", "REINDEX TABLE CONCURRENTLY effects",
		"DROP INDEX CONCURRENTLY i", "CREATE DATABASE quorate_test_loose", "DROP DATABASE quorate_test_loose", "ALTER SYSTEM RESET work_mem",
	},
	"mysql": {
		"CREATE TABLE made (n integer)", "ALTER TABLE made ADD m integer", "CREATE INDEX i ON made (n)", "RENAME TABLE made TO other", "TRUNCATE other",
		"DROP TABLE other", "CREATE VIEW v AS SELECT 1", "DROP VIEW v", "ANALYZE TABLE effects", "OPTIMIZE TABLE effects", "FLUSH STATUS",
		"CREATE PROCEDURE p() SELECT 1", "LOCK TABLES effects WRITE",
	},
	"sqlite": {"VACUUM", "PRAGMA optimize"},
}

func TestWhatCannotBeInATransactionIsRefusedUnlessTheStepSaysSo(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		no := false
		for i, statement := range transactionless[db.kind] {
			step := sqlStep(statement)
			got := db.run(t, holdOf(int64(2*i+1), jobs.Fence(2*i+1), step))
			want(t, got, jobs.Failed, jobs.ReasonStep, "transactional = false")
			if err := db.exec.Targets.CheckStep(step); err == nil || !strings.Contains(err.Error(), "transactional = false") {
				t.Errorf("%s passes: %v", statement, err)
			}
			step.Transactional = &no
			if err := db.exec.Targets.CheckStep(step); err != nil {
				t.Errorf("%s without a transaction: %v", statement, err)
			}
			want(t, db.run(t, holdOf(int64(2*i+2), jobs.Fence(2*i+2), step)), jobs.Succeeded, "")
		}
	})
}

func TestWhatNoStepMaySayIsRefusedInEveryTarget(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		for _, statement := range []string{
			"BEGIN", "START TRANSACTION", "COMMIT", "ROLLBACK", "SAVEPOINT a", "RELEASE SAVEPOINT a", "/* so */ COMMIT", "END",
			insert + "; " + insert, insert + "; COMMIT", "SELECT 1;;SELECT 2",
		} {
			for _, transactional := range []bool{true, false} {
				step := sqlStep(insert, statement)
				step.Transactional = &transactional
				want(t, db.run(t, holdOf(1, 7, step)), jobs.Failed, jobs.ReasonStep, "statement 2 of 2")
				if err := db.exec.Targets.CheckStep(step); err == nil {
					t.Errorf("%s passes", statement)
				}
			}
		}
		wantEffects(t, db, "0")
	})
}

func TestTablesThatCannotRollBackAreRefused(t *testing.T) {
	t.Parallel()
	db := newTarget(t, "mysql")
	for name, engine := range map[string]string{"old_style": "MyISAM", "aria": "Aria", "`in memory`": "MEMORY"} {
		db.do(t, "CREATE TABLE "+name+" (n integer) ENGINE = "+engine)
	}
	no := false
	for i, statement := range []string{
		"INSERT INTO old_style (n) VALUES (1)", "REPLACE old_style SET n = 1", "UPDATE effects, old_style SET n = 2", "DELETE FROM aria WHERE n = 1",
		"INSERT INTO `in memory` SELECT 1", "WITH one AS (SELECT 1 AS n) DELETE FROM old_style WHERE n IN (SELECT n FROM one)",
		"DELETE o FROM old_style o JOIN effects", "insert low_priority into Old_Style values (1)",
	} {
		h := holdOf(int64(i+1), jobs.Fence(i+1), sqlStep(insert, statement))
		want(t, db.run(t, h), jobs.Failed, jobs.ReasonStep, "cannot roll back", "ENGINE = InnoDB")
		wantEffects(t, db, "0")
		if i > 1 {
			continue // not every server knows the others
		}
		h.Job.Steps[0].SQL = jobs.Strings{statement}
		h.Job.Steps[0].Transactional = &no
		want(t, db.run(t, h), jobs.Succeeded, "")
	}
	want(t, db.run(t, holdOf(50, 50, sqlStep("INSERT INTO effects SELECT n FROM old_style", "SELECT * FROM old_style"))), jobs.Succeeded, "")
}

func TestStepWithoutATransactionDoesWhatItDoesOnceAndSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		no, five := false, int64(5)
		loose := func(statements ...string) jobs.Step {
			step := sqlStep(statements...)
			step.Transactional = &no
			return step
		}
		got := db.run(t, holdOf(1, 7, loose(insert, "INSERT INTO effects (nosuch) VALUES (1)", insert)))
		want(t, got, jobs.Failed, jobs.ReasonStep, "statement 2 of 3")
		wantEffects(t, db, "1") // and not taken back
		step := loose(insert)
		step.ExpectRows = &five
		want(t, db.run(t, holdOf(2, 8, step)), jobs.Failed, jobs.ReasonStep, "changed 1 rows where expect_rows = 5")
		wantEffects(t, db, "2")

		step = loose(insert, endless[db.kind], insert)
		step.Timeout = jobs.Duration(300 * time.Millisecond)
		got = db.run(t, holdOf(3, 9, step))
		if got.Status == jobs.Succeeded || !strings.Contains(got.Error, "the step's timeout of 300ms") {
			t.Errorf("%s(%s): %s", got.Status, got.Reason, got.Error)
		}
		db.wantIdle(t)
		if n := db.effects(t); db.kind != "sqlite" && n != "3" {
			t.Errorf("%s effects, want 3", n)
		}
	})
}

func TestLostAnswerWithoutATransactionIsUnknown(t *testing.T) {
	t.Parallel()
	no := false
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, tap := through(t, newTarget(t, kind))
			tap.set(&trap{"INTO effects", 1, func(l *line, pass func()) {
				l.mute.Store(true)
				pass()
				l.client.Close()
			}})
			step := sqlStep(insert)
			step.Transactional = &no
			want(t, db.run(t, holdOf(1, 7, step)), jobs.Unknown, jobs.ReasonOutcome, "did not say how it ended")
			eventually(t, "it is there", func() bool { return db.effects(t) == "1" })
		})
	}
}

func TestIsolationIsWhatTheStepAsksFor(t *testing.T) {
	t.Parallel()
	ask := map[string]string{"postgres": "SHOW transaction_isolation", "mysql": "SELECT @@tx_isolation"}
	for kind, sql := range ask {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := newTarget(t, kind)
			for i, level := range []string{"read committed", "repeatable read", "serializable"} {
				step := sqlStep(insert, sql)
				step.Isolation = level
				h := holdOf(int64(i+1), jobs.Fence(i+1), step)
				h.Run.Due = due.Add(time.Duration(i) * time.Minute)
				got := db.run(t, h)
				want(t, got, jobs.Succeeded, "")
				said := strings.ToLower(strings.ReplaceAll(got.Steps[0].Output, "-", " "))
				if !strings.Contains(said, level) {
					t.Errorf("asked for %s, got %s", level, said)
				}
			}
		})
	}
}
