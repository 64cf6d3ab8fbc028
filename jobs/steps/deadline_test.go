package steps_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/jobs"
	"quorate/jobs/steps"
)

func TestNothingIsLeftRunningAfterTheDeadline(t *testing.T) {
	t.Parallel()
	slow := map[string][]string{
		"postgres": {endless["postgres"], "INSERT INTO effects SELECT 'x' FROM generate_series(1, 1000000000)"},
		"mysql":    {endless["mysql"], "DO sleep(30)", "INSERT INTO effects SELECT 'x' FROM seq_1_to_1000000000"},
		"sqlite":   {endless["sqlite"]},
	}
	eachTarget(t, func(t *testing.T, db *target) {
		for i, statement := range slow[db.kind] {
			step := sqlStep(insert, statement)
			step.Timeout = jobs.Duration(300 * time.Millisecond)
			h := holdOf(int64(i+1), jobs.Fence(i+1), step)
			begun := time.Now()
			got := db.run(t, h)
			want(t, got, jobs.Failed, jobs.ReasonTimeout, "the step's timeout of 300ms has run out")
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("%s: stopped after %s", statement, took)
			}
			db.wantIdle(t)
			wantEffects(t, db, "0")
		}
	})
}

// endless is a statement that no deadline of ours ends, and active counts what the
// server is still doing for others than the one who asks.
var (
	endless = map[string]string{
		"postgres": "SELECT pg_sleep(30)",
		"mysql":    "SELECT benchmark(1000000000, md5('x'))", // which returns no error when it is killed
		"sqlite":   "INSERT INTO effects WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT 'x' FROM n",
	}
	active = map[string]string{
		"postgres": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
		"mysql":    "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
		"sqlite":   "SELECT 0",
	}
)

func (db *target) wantIdle(t *testing.T) {
	t.Helper()
	eventually(t, "nothing runs on the server", func() bool { return db.do(t, active[db.kind]) == "0" })
}

// What MySQL undoes of a statement that it has stopped is not counted: that takes
// it about as long as the doing. QUORATE_TEST_ROUNDS=100 looks more often.
func TestNothingRunsOnTheServerSoonAfterValidityEnded(t *testing.T) {
	const soon = 200 * time.Millisecond
	for kind, at := range map[string]struct {
		statements []string
		running    string
	}{
		"postgres": {
			[]string{endless["postgres"], "INSERT INTO effects SELECT generate_series(1, 1000000000)"},
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()",
		},
		"mysql": {
			[]string{endless["mysql"], "DO sleep(30)", "INSERT INTO effects SELECT 'x' FROM seq_1_to_1000000000"},
			`SELECT count(*) FROM information_schema.processlist WHERE db = database() AND id <> connection_id()
				AND command IN ('Query', 'Execute') AND state <> 'Rollback'`,
		},
	} {
		t.Run(kind, func(t *testing.T) {
			db := newTarget(t, kind)
			for _, statement := range at.statements {
				var late []time.Duration
				for round := range rounds(5) {
					end := time.Now().Add(300 * time.Millisecond)
					// A lease ends its context a moment before its validity ends.
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Until(end)-3*time.Millisecond, func() { cancel(errors.New("the lease was lost")) })
					h := holdOf(int64(round+2), jobs.Fence(round+2), sqlStep(insert, statement))
					h.Validity = func() time.Duration { return time.Until(end) }
					done := make(chan jobs.Outcome, 1)
					go func() { done <- db.exec.Execute(ctx, h) }()
					time.Sleep(time.Until(end))
					eventually(t, "nothing runs", func() bool { return db.do(t, at.running) == "0" })
					late = append(late, time.Since(end))
					want(t, <-done, jobs.Failed, jobs.ReasonLeaseLost, "the lease was lost")
				}
				slices.Sort(late)
				if late[0] > soon { // others are busy here too, but not always
					t.Errorf("%s: went on for %s after validity had ended, at least", statement, late[0])
				}
				t.Logf("%s: nothing ran %s after validity had ended in the median of %d, %s at most", statement,
					late[len(late)/2].Round(100*time.Microsecond), len(late), late[len(late)-1].Round(100*time.Microsecond))
			}
			wantEffects(t, db, "0")
			want(t, db.run(t, holdOf(1000, 1000, sqlStep(insert))), jobs.Succeeded, "")
		})
	}
}

func TestCancelStopsTheServerAndSaysWhy(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, db *target) {
		for _, c := range []struct {
			cause  error
			reason jobs.Reason
		}{
			{steps.ErrShutdown, jobs.ReasonShutdown},
			{context.Canceled, jobs.ReasonShutdown},
			{errors.New("masters are gone"), jobs.ReasonLeaseLost},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			h := holdOf(1, 7, sqlStep(insert, endless[db.kind]))
			h.Progress = func(s jobs.StepRun) {
				if s.Status == jobs.Running {
					time.AfterFunc(100*time.Millisecond, func() { cancel(c.cause) })
				}
			}
			want(t, db.exec.Execute(ctx, h), jobs.Failed, c.reason, c.cause.Error())
			db.wantIdle(t)
			wantEffects(t, db, "0")
		}
	})
}

func TestServerStopsWorkingForAReplicaThatIsGone(t *testing.T) {
	t.Parallel()
	db := newTarget(t, "postgres")
	u, err := url.Parse(db.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testenv.NewProxy(t, u.Host)
	u.Host = proxy.Addr()
	exec := executor(t, u.String())
	done := make(chan jobs.Outcome, 1)
	go func() { done <- exec.Execute(t.Context(), holdOf(1, 7, sqlStep(insert, "SELECT pg_sleep(60)"))) }()
	eventually(t, "the statement runs", func() bool {
		return db.do(t, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'") == "1"
	})
	proxy.Set(testenv.Refuse)
	want(t, <-done, jobs.Failed, jobs.ReasonStep)
	db.wantIdle(t)
	wantEffects(t, db, "0")
}

func TestReaderInTheWayHoldsUpACommitAndDoesNotUndoIt(t *testing.T) {
	t.Parallel()
	db := newTarget(t, "sqlite")
	reader, err := sql.Open("sqlite", strings.TrimPrefix(db.url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	read := func() *sql.Rows {
		rows, err := reader.Query("SELECT 1 FROM effects UNION ALL SELECT 2")
		if err != nil || !rows.Next() {
			t.Fatal(err)
		}
		return rows
	}
	rows := read()
	db.exec.LookUp = 200 * time.Millisecond
	want(t, db.run(t, holdOf(1, 7, sqlStep(insert))), jobs.Failed, jobs.ReasonStep, "not committed")
	rows.Close()
	wantEffects(t, db, "0")

	rows = read()
	db.exec.LookUp = 10 * time.Second
	time.AfterFunc(200*time.Millisecond, func() { rows.Close() })
	want(t, db.run(t, holdOf(2, 8, sqlStep(insert))), jobs.Succeeded, "")
	wantEffects(t, db, "1")
}

// What is stopped for one step must not hit another: neither what its own
// connection does next, nor anybody else's. QUORATE_TEST_ROUNDS=1000 tries harder.
func TestStoppingAStepHitsNothingElse(t *testing.T) {
	t.Parallel()
	for kind, naps := range map[string]func(time.Duration) string{
		"postgres": func(d time.Duration) string { return fmt.Sprintf("SELECT pg_sleep(%.4f)", d.Seconds()) },
		"mysql":    func(d time.Duration) string { return fmt.Sprintf("DO sleep(%.4f)", d.Seconds()) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := newTarget(t, kind)
			var all sync.WaitGroup
			var mu sync.Mutex
			ended := map[jobs.Status]int{}
			for i := range 6 {
				all.Go(func() {
					for round := range rounds(40) {
						nap := 5 * time.Millisecond
						step := sqlStep(insert, naps(nap))
						hurried := i%2 == 0
						if hurried { // its time runs out at about the moment when it is done
							step.Timeout = jobs.Duration(nap + rand.N(2*nap))
						}
						h := holdOf(int64(round), jobs.Fence(round), step)
						h.Run.Job, h.Run.Due = fmt.Sprint("job", i), due.Add(time.Duration(round)*time.Minute)
						h.Run.Lock = h.Run.Job
						got := db.run(t, h)
						if got.Status != jobs.Succeeded && !(hurried && got.Reason == jobs.ReasonTimeout) {
							t.Errorf("hurried %v: %s(%s): %s", hurried, got.Status, got.Reason, got.Error)
						}
						mu.Lock()
						ended[got.Status]++
						mu.Unlock()
					}
				})
			}
			all.Wait()
			wantEffects(t, db, fmt.Sprint(ended[jobs.Succeeded]))
			if ended[jobs.Failed] == 0 {
				t.Error("no step was stopped")
			}
			t.Logf("%d steps were done, %d stopped in time", ended[jobs.Succeeded], ended[jobs.Failed])
		})
	}
}
