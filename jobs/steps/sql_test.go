package steps_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
)

func TestEffectCommitsOncePerTick(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				got := db.run(t, holdOf(int64(i+1), jobs.Fence(i+1), sqlStep(insert)))
				if got.Status != jobs.Succeeded && got.Reason != jobs.ReasonLeaseLost {
					t.Errorf("run %d: %s(%s): %s", i+1, got.Status, got.Reason, got.Error)
				}
			})
		}
		all.Wait()
		wantEffects(t, db, "1")
	})
}

func TestMarkerStopsARepeat(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		want(t, db.run(t, holdOf(1, 7, sqlStep(insert))), jobs.Succeeded, "")
		again := db.run(t, holdOf(2, 8, sqlStep(insert), sqlStep(insert)))
		want(t, again, jobs.Succeeded, "")
		if got := again.Steps[0].Output; got != "already done by run 1 (fence 7)" {
			t.Errorf("output of the repeated step: %q", got)
		}
		wantEffects(t, db, "2") // the second step had not been done

		other := holdOf(3, 9, sqlStep(insert))
		other.Run.Due = due.Add(time.Microsecond)
		want(t, db.run(t, other), jobs.Succeeded, "")
		wantEffects(t, db, "3")
	})
}

func TestStaleFenceCannotWrite(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		want(t, db.run(t, holdOf(2, 8, sqlStep(insert))), jobs.Succeeded, "")
		old := holdOf(1, 7, sqlStep(insert))
		old.Run.Due = due.Add(-time.Minute)
		want(t, db.run(t, old), jobs.Failed, jobs.ReasonLeaseLost, "fenced off", "fence 8", "has 7")
		wantEffects(t, db, "1")

		elsewhere := holdOf(3, 7, sqlStep(insert)) // another lock has fences of its own
		elsewhere.Run.Lock, elsewhere.Run.Due = "billing", old.Run.Due
		want(t, db.run(t, elsewhere), jobs.Succeeded, "")
	})
}

// frozen returns a hold whose process stands still right before COMMIT, until
// thawed; arrived is closed when it does.
func frozen(h steps.Hold, validity time.Duration) (held steps.Hold, arrived, thaw chan struct{}) {
	arrived, thaw = make(chan struct{}), make(chan struct{})
	asked := 0
	h.Validity = func() time.Duration {
		if asked++; asked == 3 { // before the step, at BEGIN, before COMMIT
			close(arrived)
			<-thaw
		}
		return validity
	}
	return h, arrived, thaw
}

func TestNewOwnerWaitsForALiveOldTransaction(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		old, arrived, thaw := frozen(holdOf(1, 7, sqlStep(insert)), 10*time.Second)
		oldDone, newDone := make(chan jobs.Outcome, 1), make(chan jobs.Outcome, 1)
		go func() { oldDone <- db.run(t, old) }()
		<-arrived
		next := holdOf(2, 8, sqlStep(insert))
		next.Run.Due = due.Add(time.Minute)
		go func() { newDone <- db.run(t, next) }()
		select {
		case got := <-newDone:
			t.Fatalf("the new owner did not wait: %+v", got)
		case <-time.After(300 * time.Millisecond):
		}
		close(thaw)
		want(t, <-oldDone, jobs.Succeeded, "")
		want(t, <-newDone, jobs.Succeeded, "")
		wantEffects(t, db, "2")
	})
}

func TestFrozenOwnerIsGivenUpByTheServerAndCannotCommitLate(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := newTarget(t, kind)
			old, arrived, thaw := frozen(holdOf(1, 7, sqlStep(insert)), time.Second)
			done := make(chan jobs.Outcome, 1)
			go func() { done <- db.run(t, old) }()
			<-arrived
			begun := time.Now()
			next := holdOf(2, 8, sqlStep(insert))
			next.Run.Due = due.Add(time.Minute)
			want(t, db.run(t, next), jobs.Succeeded, "")
			if took := time.Since(begun); took < 500*time.Millisecond || took > 5*time.Second {
				t.Errorf("the new owner waited %s, want about the idle second", took)
			}
			close(thaw)
			want(t, <-done, jobs.Failed, jobs.ReasonStep, "not committed")
			wantEffects(t, db, "1")
		})
	}
}

func TestLeaseThatEndsBeforeCommitRollsBack(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		h, asked := holdOf(1, 7, sqlStep(insert)), 0
		h.Validity = func() time.Duration {
			if asked++; asked < 3 {
				return time.Second
			}
			return -time.Millisecond
		}
		want(t, db.run(t, h), jobs.Failed, jobs.ReasonLeaseLost, "lease has ended")
		wantEffects(t, db, "0")
	})
}

func TestWrongNumberOfRowsRollsBack(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		two, three := int64(2), int64(3)
		step := sqlStep(insert, insert)
		step.ExpectRows = &three
		got := db.run(t, holdOf(1, 7, step))
		want(t, got, jobs.Failed, jobs.ReasonStep, "changed 2 rows where expect_rows = 3")
		wantEffects(t, db, "0")
		step.ExpectRows = &two
		want(t, db.run(t, holdOf(2, 8, step)), jobs.Succeeded, "")
		wantEffects(t, db, "2")
	})
}

func TestStatementsOfAStepShareOneTransaction(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		got := db.run(t, holdOf(1, 7, sqlStep(insert, "INSERT INTO effects (nosuch) VALUES (1)")))
		want(t, got, jobs.Failed, jobs.ReasonStep, `step "step1"`, `target "shop"`, "statement 2 of 2", "nosuch")
		wantEffects(t, db, "0")
		want(t, db.run(t, holdOf(2, 8, sqlStep(insert))), jobs.Succeeded, "")
	})
}

func TestParametersAreBoundAndTyped(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		h := holdOf(11, 7, sqlStep(
			"CREATE TEMPORARY TABLE seen AS SELECT :job AS j, :due AS d, :run_id AS r, :fence AS f, :attempt AS a, :replica AS n",
			"INSERT INTO effects SELECT :job WHERE :run_id = 11 AND :fence = 7 AND :attempt = 1 AND ':due' = ':due'",
			"SELECT j, r, f, a, n, d FROM seen"))
		h.Run.Job, h.Run.Replica = "x'; DROP TABLE effects; --", "b"
		got := db.run(t, h)
		want(t, got, jobs.Succeeded, "")
		if who := db.do(t, "SELECT who FROM effects"); who != h.Run.Job {
			t.Errorf("job was bound as %q", who)
		}
		out := got.Steps[0].Output
		for _, piece := range []string{"\t11\t7\t1\tb\t2026-11-21", "08:00:00.123456", "(1 rows)"} {
			if !strings.Contains(out, piece) {
				t.Errorf("output lacks %q:\n%s", piece, out)
			}
		}
	})
}

func TestRowsChangedAreCountedAndRowsReadAreShown(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		returning := "INSERT INTO effects (who) VALUES ('c'), ('d') RETURNING who"
		got := db.run(t, holdOf(1, 7, sqlStep(
			"INSERT INTO effects (who) VALUES ('a'), ('b')", returning,
			"UPDATE effects SET who = 'e' WHERE who = 'a'",
			"UPDATE effects SET who = 'e' WHERE who = 'nobody'",
			"SELECT who FROM effects ORDER BY who",
			"DELETE FROM effects WHERE who IN ('b', 'c')")))
		want(t, got, jobs.Succeeded, "")
		if rows := got.Steps[0].Rows; rows != 7 {
			t.Errorf("%d rows changed, want 7", rows)
		}
		if out := got.Steps[0].Output; out != "who\nc\nd\n(2 rows)\nwho\nb\nc\nd\ne\n(4 rows)\n" {
			t.Errorf("output %q", out)
		}
	})
}

func TestManyRowsAreShownInPart(t *testing.T) {
	t.Parallel()
	db := newTarget(t, "postgres")
	got := db.run(t, holdOf(1, 7, sqlStep("SELECT repeat('ö', 100000), NULL, n FROM generate_series(1, 5000) AS n")))
	want(t, got, jobs.Succeeded, "")
	if out := got.Steps[0].Output; len(out) > 8000 || !strings.Contains(out, "(5000 rows") || !strings.Contains(out, "…\tNULL\t1\n") {
		t.Errorf("%d bytes of output: %.300s", len(out), out)
	}
}

func TestNothingOfAStepReachesTheNext(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		got := db.run(t, holdOf(1, 7,
			sqlStep("CREATE TEMPORARY TABLE scratch (n integer)"),
			sqlStep("INSERT INTO scratch (n) VALUES (1)")))
		want(t, got, jobs.Failed, jobs.ReasonStep, `step "step2"`, "scratch")
	})
	t.Run("postgres settings and locks", func(t *testing.T) {
		db := newTarget(t, "postgres")
		got := db.run(t, holdOf(1, 7,
			sqlStep("SELECT pg_backend_pid()"),
			sqlStep("SELECT pg_backend_pid()", "SET work_mem = '77MB'", "SET ROLE pg_monitor", "SELECT pg_advisory_lock(1)"),
			sqlStep("SELECT current_setting('work_mem'), current_user = session_user, count(*) FROM pg_locks WHERE locktype = 'advisory'")))
		want(t, got, jobs.Succeeded, "")
		if pid := got.Steps[0].Output; !strings.HasPrefix(got.Steps[1].Output, pid) {
			t.Errorf("the session was not used again: %s, then %s", pid, got.Steps[1].Output)
		}
		if out := got.Steps[2].Output; strings.Contains(out, "77MB") || !strings.Contains(out, "\tt\t0\n") {
			t.Errorf("the step before shows: %s", out)
		}
	})
}

func TestSessionThatDiedWhileIdleIsReplaced(t *testing.T) {
	t.Parallel()
	db := newTarget(t, "postgres")
	want(t, db.run(t, holdOf(1, 7, sqlStep(insert))), jobs.Succeeded, "")
	db.do(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	db.wantIdle(t)
	want(t, db.run(t, holdOf(2, 8, sqlStep("SELECT 1"), sqlStep(insert))), jobs.Succeeded, "")
	wantEffects(t, db, "2")
}

func TestWhatMySQLCommitsByItselfIsUnknown(t *testing.T) {
	t.Parallel()
	db := newTarget(t, "mysql")
	db.do(t, "CREATE PROCEDURE commits() BEGIN INSERT INTO effects VALUES ('p'); COMMIT; END")
	db.do(t, "CREATE PROCEDURE fails() BEGIN COMMIT; SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no more'; END")
	db.do(t, "CREATE TABLE old_style (who varchar(100)) ENGINE = MyISAM")
	db.do(t, "CREATE PROCEDURE old() INSERT INTO old_style VALUES ('x')")
	for i, statements := range [][]string{
		{insert, "CALL commits()"},
		{insert, "CALL fails()"},
		{"CALL old()", "INSERT INTO effects VALUES (nosuch)"},
	} {
		step := sqlStep(statements...)
		step.Name = fmt.Sprint("escape", i)
		got := db.run(t, holdOf(int64(i+1), 7, step))
		want(t, got, jobs.Unknown, jobs.ReasonOutcome)
		t.Log(got.Error)
	}
}

func TestMissingGuardTablesSayHowToMakeThem(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		if err := db.exec.Targets.Check(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := db.exec.Targets.Prepare(t.Context(), "shop"); err != nil {
				t.Fatalf("prepared again: %v", err)
			}
		}
		db.do(t, "DROP TABLE quorate_effect")
		const mend = "run quorate migrate target shop"
		if err := db.exec.Targets.Check(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), mend) {
			t.Errorf("check: %v", err)
		}
		want(t, db.run(t, holdOf(1, 7, sqlStep(insert))), jobs.Failed, jobs.ReasonStep, mend)
		db.do(t, "DROP TABLE quorate_fence")
		want(t, db.run(t, holdOf(1, 7, sqlStep(insert))), jobs.Failed, jobs.ReasonStep, mend)
		wantEffects(t, db, "0")
	})
}

func TestTablesCanBePreparedByManyAtOnce(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		db.do(t, "DROP TABLE quorate_effect")
		db.do(t, "DROP TABLE quorate_fence")
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := db.exec.Targets.Prepare(t.Context(), "shop"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := db.exec.Targets.Check(t.Context(), "shop"); err != nil {
			t.Error(err)
		}
	})
}

func TestManyLocksDoNotStandInEachOthersWay(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				h := holdOf(int64(i), 7, sqlStep(insert))
				h.Run.Job = fmt.Sprint("job", i)
				h.Run.Lock = h.Run.Job
				want(t, db.run(t, h), jobs.Succeeded, "")
			})
		}
		all.Wait()
		wantEffects(t, db, "60")
	})
}
