package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"quorate/internal/testenv"
	"quorate/jobs"
	"quorate/store"
	"quorate/store/postgres"
	"quorate/store/storetest"
)

// proxied opens a migrated store through a proxy that can break the network, and a
// connection that goes around it.
func proxied(t *testing.T, options ...string) (*postgres.Store, *testenv.Proxy, *pgx.Conn) {
	t.Helper()
	address, err := url.Parse(testenv.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	watch, err := pgx.Connect(t.Context(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { watch.Close(context.Background()) })
	proxy := testenv.NewProxy(t, address.Host)
	address.Host = proxy.Addr()
	address.RawQuery = strings.Join(append(options, address.RawQuery), "&")
	s := opened(t, address.String())
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, proxy, watch
}

func claim(job string) store.Claim {
	return store.Claim{
		Tick:  jobs.Tick{Job: &jobs.Job{Name: job, Lock: job}, Due: time.Now(), Attempt: 1, Trigger: jobs.TriggerManual},
		Lease: time.Minute, Replica: "one", Revision: "r1",
	}
}

func TestAServerThatIsGoneIsAway(t *testing.T) {
	s, proxy, _ := proxied(t)
	proxy.Set(testenv.Refuse)
	storetest.Away(t, s, 5*time.Second)
	proxy.Set(testenv.Pass)
	back(t, s)
}

func TestAServerThatDoesNotAnswerIsAwayWithinTheDeadline(t *testing.T) {
	s, proxy, _ := proxied(t)
	proxy.Set(testenv.Hang)
	storetest.Away(t, s, 200*time.Millisecond)
	proxy.Set(testenv.Pass)
	back(t, s)
}

func TestConnectionsThatBreakAreReplaced(t *testing.T) {
	s, proxy, _ := proxied(t)
	proxy.Cut()
	back(t, s)
}

// back waits for the store to answer again, and checks that it decides.
func back(t *testing.T, s *postgres.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, err := s.Claim(ctx, claim("back"))
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrAway) || ctx.Err() != nil {
			t.Fatalf("the network is back, and the store says: %v", err)
		}
	}
}

func TestAFinishWhoseAnswerWasLostIsRepeatedWithSuccess(t *testing.T) {
	s, proxy, _ := proxied(t)
	run, err := s.Claim(t.Context(), claim("restock"))
	if err != nil {
		t.Fatal(err)
	}
	outcome := jobs.Outcome{Status: jobs.Succeeded, Steps: []jobs.StepRun{{Name: "only", Kind: "sql", Status: jobs.Succeeded}}}
	proxy.Set(testenv.Mute)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := s.Finish(ctx, run, outcome); !errors.Is(err, store.ErrAway) {
		t.Fatalf("the answer was swallowed, and finish says: %v", err)
	}
	proxy.Set(testenv.Pass)
	for {
		done, err := s.Finish(t.Context(), run, outcome)
		if errors.Is(err, store.ErrAway) {
			continue // one more of the connections that the proxy has cut
		}
		if err != nil || done.Status != jobs.Succeeded {
			t.Fatalf("repeated finish: %s, %v", done.Status, err)
		}
		break
	}
	if got, err := s.Run(t.Context(), run.ID); err != nil || len(got.Steps) != 1 {
		t.Errorf("the run has %d steps, want 1 (%v)", len(got.Steps), err)
	}
}

func TestAnErrorNamesThePlaceAndNeverThePassword(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := postgres.Open(ctx, "postgres://quorate:s3cr3t@127.0.0.1:1/quorate?sslmode=disable")
	if !errors.Is(err, store.ErrAway) {
		t.Fatalf("nobody listens there, and open says: %v", err)
	}
	if want := "postgres at 127.0.0.1:1/quorate cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestABadURLIsRefusedWithoutShowingIt(t *testing.T) {
	for _, bad := range []string{
		"", "quorate", "s3cr3t", "mysql://u:s3cr3t@h/db", "host=h password=s3cr3t",
		"postgres://u:s3cr3t@h:port/db", "postgres://u:a/s3cr3t@h/db", "postgres://u:%s3cr3t@h/db", "postgres://u:s3cr3t[@h/db",
		"postgres://u:s3cr3t@h/db?sslmode=perhaps", "postgres://u:s3cr3t@h/db?connect_timeout=soon",
		"postgres://u:s3cr3t@h/db?pool_max_conns=s3cr3t", "postgres://u:s3cr3t@h/db?sslmode=verify-full&sslrootcert=/none",
		"postgres://h/db?user=u&password=s3cr3t&sslmode=perhaps", "postgres://u:s3cr3t@h:99999999/db", "postgres://u:x#s3cr3t@h/db", "postgres://u:1#s3cr3t@h/db", "postgres://u:1?s3cr3t@h/db", "postgres://u:1/s3cr3t@h/db",
	} {
		s, err := postgres.Open(t.Context(), bad)
		if err == nil {
			s.Close()
			t.Errorf("%q was accepted", bad)
			continue
		}
		if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("the error shows the password: %v", err)
		}
		if !strings.Contains(err.Error(), "url") {
			t.Errorf("the error does not say that the url is at fault: %v", err)
		}
	}
}

func TestATableThatIsNotThereAsksForMigrate(t *testing.T) {
	s := opened(t, testenv.Postgres(t))
	if _, err := s.Claim(t.Context(), claim("restock")); err == nil || !strings.Contains(err.Error(), "quorate migrate") {
		t.Errorf("claim says: %v", err)
	}
	if status, err := s.Status(t.Context()); err != nil || status.Applied != 0 || status.Known == 0 {
		t.Errorf("status %+v, %v", status, err)
	}
}
