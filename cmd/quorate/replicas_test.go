package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"quorate/internal/testenv"
	"quorate/web"
)

// A fleet is three replicas, each a process of its own, with the same config.toml:
// five real masters, a store and a target on Postgres, a target on MariaDB, an HTTP
// receiver and a command.
type fleet struct {
	dir          string
	shop, ledger string // URLs of the targets
	mu           sync.Mutex
	received     map[string]int // HTTP requests, by X-Quorate-Due
	processes    []*exec.Cmd
	consoles     []*console
	firstURL     string
}

const fleetToken = "a-token-for-the-fleet"

const fleetConfig = `
[replica]
drain_timeout = "10s"
[redlock]
masters = [%s]
restart_guard = "off"   # the test started the masters a moment ago
[store]
url = %q
[web]
token = %q
[targets.shop]
url = %q
[targets.ledger]
url = %q

[jobs.beat]
cron = "* * * * * *"
[[jobs.beat.steps]]
name = "postgres"
target = "shop"
sql = "INSERT INTO effects (due, run_id, fence) VALUES (:due, :run_id, :fence)"
expect_rows = 1
[[jobs.beat.steps]]
name = "mariadb"
target = "ledger"
sql = "INSERT INTO effects (due, run_id, fence) VALUES (:due, :run_id, :fence)"
expect_rows = 1
[[jobs.beat.steps]]
name = "http"
http = { url = %q }
[[jobs.beat.steps]]
name = "command"
command = ["/bin/sh", "-c", "echo $QUORATE_DUE >> $EFFECTS"]
env = { EFFECTS = %q }
`

func startFleet(t *testing.T) *fleet {
	f := &fleet{dir: t.TempDir(), shop: testenv.Postgres(t), ledger: testenv.MariaDB(t), received: map[string]int{}}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.received[r.Header.Get("X-Quorate-Due")]++
	}))
	t.Cleanup(receiver.Close)
	var masters []string
	for _, m := range testenv.Masters(t, 5) {
		masters = append(masters, strconv.Quote(m.URL()))
	}
	config := fmt.Sprintf(fleetConfig, strings.Join(masters, ", "), testenv.Postgres(t), fleetToken,
		f.shop, f.ledger, receiver.URL, filepath.Join(f.dir, "effects"))
	if err := os.WriteFile(filepath.Join(f.dir, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f.makeEffects(t)
	for _, target := range []string{"shop", "ledger"} {
		if out, err := f.command("migrate", "target", target).CombinedOutput(); err != nil {
			t.Fatalf("migrate target %s: %v\n%s", target, err, out)
		}
	}
	for i := range 3 {
		screen := &console{}
		p := f.command("serve", "--name", fmt.Sprintf("r%d", i+1), "--listen", "127.0.0.1:0")
		p.Stdout, p.Stderr = screen, screen
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
		f.processes, f.consoles = append(f.processes, p), append(f.consoles, screen)
	}
	for _, screen := range f.consoles {
		f.firstURL = screen.waitFor(t, `url=(http://\S+)`, 30*time.Second)[1]
		screen.waitFor(t, "scheduler started", 30*time.Second)
	}
	return f
}

func (f *fleet) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir = f.dir
	cmd.Env = append(os.Environ(), asQuorate+"=1", "QUORATE_URL="+f.firstURL, "QUORATE_TOKEN="+fleetToken)
	return cmd
}

func (f *fleet) makeEffects(t *testing.T) {
	t.Helper()
	pg, err := pgx.Connect(t.Context(), f.shop)
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close(context.Background())
	if _, err := pg.Exec(t.Context(), "CREATE TABLE effects (due timestamptz, run_id bigint, fence bigint)"); err != nil {
		t.Fatal(err)
	}
	my := f.openLedger(t)
	if _, err := my.ExecContext(t.Context(), "CREATE TABLE effects (due datetime(6), run_id bigint, fence bigint) ENGINE=InnoDB"); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) openLedger(t *testing.T) *sql.DB {
	t.Helper()
	u, err := url.Parse(f.ledger)
	if err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName, c.ParseTime = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/"), true
	c.Passwd, _ = u.User.Password()
	db, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// runs asks the first replica, as `quorate runs --json` does.
func (f *fleet) runs(t *testing.T) (runs []web.Run) {
	t.Helper()
	out, err := f.command("runs", "--job", "beat", "--limit", "1000", "--json").Output()
	if err != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for dec.More() {
		var r web.Run
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b web.Run) int { return a.Due.Compare(b.Due) })
	return runs
}

// effects counts what each of the four kinds of step did, by due time.
func (f *fleet) effects(t *testing.T) map[string]map[int64]int {
	t.Helper()
	counts := map[string]map[int64]int{"postgres": {}, "mariadb": {}, "http": {}, "command": {}}
	pg, err := pgx.Connect(t.Context(), f.shop)
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close(context.Background())
	rows, err := pg.Query(t.Context(), "SELECT due FROM effects")
	if err != nil {
		t.Fatal(err)
	}
	dues, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		t.Fatal(err)
	}
	for _, due := range dues {
		counts["postgres"][due.Unix()]++
	}
	my, err := f.openLedger(t).QueryContext(t.Context(), "SELECT due FROM effects")
	if err != nil {
		t.Fatal(err)
	}
	defer my.Close()
	for my.Next() {
		var due time.Time
		if err := my.Scan(&due); err != nil {
			t.Fatal(err)
		}
		counts["mariadb"][due.Unix()]++
	}
	if err := my.Err(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(f.dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for due, n := range f.received {
		counts["http"][unix(t, due)] += n
	}
	for line := range strings.Lines(string(text)) {
		counts["command"][unix(t, strings.TrimSpace(line))]++
	}
	return counts
}

func unix(t *testing.T, due string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, due)
	if err != nil {
		t.Fatal(err)
	}
	return at.Unix()
}

// The number of ticks can be raised for a longer look: QUORATE_TEST_TICKS=60.
func TestThreeProcessesRunEveryTickOnceOnEveryKindOfStep(t *testing.T) {
	ticks := 8
	if n, err := strconv.Atoi(os.Getenv("QUORATE_TEST_TICKS")); err == nil {
		ticks = n
	}
	f := startFleet(t)
	for deadline := time.Now().Add(time.Duration(ticks)*time.Second + 30*time.Second); len(f.runs(t)) < ticks; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d ticks", len(f.runs(t)), ticks)
		}
	}
	// One replica has to answer the last question, so the others stop first.
	for _, p := range f.processes[:2] {
		_ = p.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range f.processes[:2] {
		if err := p.Wait(); err != nil {
			t.Errorf("replica ended with %v", err)
		}
	}
	var runs []web.Run
	for settled := false; !settled; time.Sleep(50 * time.Millisecond) {
		runs = f.runs(t)
		settled = len(runs) > 0 && runs[len(runs)-1].Status != "running"
	}
	effects, wins := f.effects(t), map[string]int{}
	for i, r := range runs {
		if r.Status != "succeeded" {
			t.Errorf("%s ended %s(%s): %s", r.Due, r.Status, r.Reason, r.Error)
		}
		if i > 0 && r.Due.Sub(runs[i-1].Due) != time.Second {
			t.Errorf("%s follows %s", r.Due, runs[i-1].Due)
		}
		for kind, seen := range effects {
			if seen[r.Due.Unix()] != 1 {
				t.Errorf("%s of %s happened %d times", kind, r.Due, seen[r.Due.Unix()])
			}
		}
		wins[r.Replica]++
	}
	t.Logf("%d ticks from %s: %d rows, effects: %d on Postgres, %d on MariaDB, %d by HTTP, %d by command; won by %v",
		len(runs), runs[0].Due.Format(time.RFC3339), len(runs), len(effects["postgres"]), len(effects["mariadb"]), len(effects["http"]), len(effects["command"]), wins)
}
