package postgres_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"quorate/jobs"
	"quorate/store"
	"quorate/store/postgres"
)

// late begins a transaction that has drawn an id and not committed it.
func late(t *testing.T, watch *pgx.Conn, job string) pgx.Tx {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), watch.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), `INSERT INTO quorate.runs (job, due, attempt, trigger, status, lock, replica, revision, finished)
		VALUES ($1, now(), 1, 'manual', 'missed', 'x', 'x', 'x', now())`, job)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// waiting polls until someone waits for a lock of this kind.
func waiting(t *testing.T, watch *pgx.Conn, kind string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if value[bool](t, watch, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = $1)`, kind) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody waits for a lock of the kind %s", kind)
		}
	}
}

// following asks for the runs behind an id, in the background.
func following(t *testing.T, s *postgres.Store, after int64) <-chan []string {
	answer := make(chan []string, 1)
	go func() {
		runs, err := s.Runs(t.Context(), store.Filter{After: after})
		if err != nil {
			t.Errorf("follow: %v", err)
		}
		var names []string
		for _, run := range runs {
			names = append(names, run.Job)
		}
		answer <- names
	}()
	return answer
}

func TestAFollowerWaitsForASmallerIDThatHasYetToCommit(t *testing.T) {
	s, watch := beneath(t)
	first, err := s.Claim(t.Context(), claim("first"))
	if err != nil {
		t.Fatal(err)
	}
	small := late(t, watch, "small")
	if _, err := s.Claim(t.Context(), claim("great")); err != nil {
		t.Fatal(err)
	}
	answer := following(t, s, first.ID)
	waiting(t, watch, "advisory")
	commit(t, small)
	if got := <-answer; !slices.Equal(got, []string{"small", "great"}) {
		t.Errorf("the follower saw %v", got)
	}
}

// Ids that are drawn once the wait is over belong to the next page, though some
// of them may be visible already.
func TestAFollowerLeavesWhatCameLaterToItsNextPage(t *testing.T) {
	s, watch := beneath(t)
	first, err := s.Claim(t.Context(), claim("first"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Claim(t.Context(), claim("second"))
	if err != nil {
		t.Fatal(err)
	}
	// Stop the follower between its two questions: its list reads locks.
	door, err := watch.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := door.Exec(t.Context(), `LOCK TABLE quorate.locks IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	answer := following(t, s, first.ID)
	waiting(t, watch, "relation")

	small := late(t, watch, "small")
	commit(t, late(t, watch, "great"))
	commit(t, door)
	if got := <-answer; !slices.Equal(got, []string{"second"}) {
		t.Errorf("the follower saw %v, and would never see small", got)
	}
	commit(t, small)
	if got := <-following(t, s, second.ID); !slices.Equal(got, []string{"small", "great"}) {
		t.Errorf("the next page is %v", got)
	}
}

// A poll that finds nothing new must not make writers wait.
func TestAFollowerThatHasSeenAllDisturbsNobody(t *testing.T) {
	s, watch := beneath(t)
	first, err := s.Claim(t.Context(), claim("first"))
	if err != nil {
		t.Fatal(err)
	}
	small := late(t, watch, "small")
	defer commit(t, small)
	if got := <-following(t, s, first.ID+1); len(got) != 0 {
		t.Errorf("the follower saw %v", got)
	}
}

// Two replicas that write the same rows take them in the same order: one waits
// for the other, and never each for the other.
func TestWritersOfTheSameRowsNeverWaitForEachOther(t *testing.T) {
	s, watch := beneath(t)
	for name, c := range map[string]struct {
		write  string                          // by another replica: one row
		record func(ctx context.Context) error // of both rows, the greater first
	}{
		"Record": {
			`INSERT INTO quorate.runs (job, due, attempt, trigger, status, lock, replica, revision, finished)
				VALUES ($1, '2026-11-21', 1, 'manual', 'missed', 'x', 'x', 'x', now()) ON CONFLICT DO NOTHING`,
			func(ctx context.Context) error {
				due := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
				_, err := s.Record(ctx,
					jobs.Run{Job: "b", Due: due, Attempt: 1, Trigger: jobs.TriggerManual, Status: jobs.Missed},
					jobs.Run{Job: "a", Due: due, Attempt: 1, Trigger: jobs.TriggerManual, Status: jobs.Missed})
				return err
			},
		},
		"Register": {
			`INSERT INTO quorate.jobs VALUES ($1, 'x', now()) ON CONFLICT DO NOTHING`,
			func(ctx context.Context) error {
				_, err := s.Register(ctx, "r1", store.JobState{Name: "b", Schedule: "x"}, store.JobState{Name: "a", Schedule: "x"})
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := pgx.ConnectConfig(t.Context(), watch.Config())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			run(t, conn, `SET TIME ZONE 'UTC'; BEGIN`)
			run(t, conn, c.write, "a")
			done := make(chan error, 1)
			go func() { done <- c.record(t.Context()) }()
			waiting(t, watch, "transactionid")
			run(t, conn, c.write, "b")
			run(t, conn, `COMMIT`)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
