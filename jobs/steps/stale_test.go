package steps_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
)

// A place is where the owner of a lock is stopped: when it has sent a text for so
// many times, which the server gets at once, or not before the owner wakes.
type place struct {
	name  string
	marks map[string][]mark
	sleep map[string][]string // what the owner does besides
}

type mark struct {
	text  string
	times int
}

var places = []place{
	{name: "before the first statement", marks: map[string][]mark{
		"postgres": {{"BEGIN", 1}, {"INTO quorate_fence", 1}, {"INTO quorate_effect", 1}, {"INTO effects", 1}},
		"mysql":    {{"START TRANSACTION", 1}, {"UPDATE quorate_fence", 1}, {"INTO quorate_effect", 1}, {"INTO effects", 1}},
	}},
	{name: "between statement and COMMIT", marks: map[string][]mark{
		"postgres": {{"UPDATE stock", 1}},
		"mysql":    {{"row_count", 2}, {"RELEASE SAVEPOINT", 1}},
	}},
	{name: "after COMMIT was sent", marks: map[string][]mark{"postgres": {{"COMMIT", 1}}, "mysql": {{"COMMIT", 1}}}},
	{
		name:  "while a statement runs",
		marks: map[string][]mark{"postgres": {{"pg_sleep", 1}}, "mysql": {{"sleep(30)", 1}}},
		sleep: map[string][]string{"postgres": {"SELECT pg_sleep(30)"}, "mysql": {"DO sleep(30)"}},
	},
}

const (
	lanes      = 12
	staleUnits = 1_000_000
)

// A silent owner keeps another from its lock for as long as its lease was when it
// began; one that has the server at work, for as long as the other's was, of which
// five seconds are the most.
const (
	oldLease = 2 * time.Second
	newLease = 30 * time.Second
	atWork   = 5 * time.Second
)

// A lane is two replicas that compete for one lock and one article. Many work at
// the same time, on the same tables.
type lane struct {
	db       *target
	name     string
	tap      *tap
	old, new *worker
}

func TestStaleRunCannotWrite(t *testing.T) {
	for _, kind := range []string{"postgres", "mysql"} {
		for _, at := range places {
			t.Run(kind+"/"+at.name, func(t *testing.T) {
				t.Parallel()
				db := newTarget(t, kind)
				db.do(t, "DROP TABLE effects")
				db.do(t, "CREATE TABLE effects (job varchar(20), due timestamp, run bigint, fence bigint)")
				db.do(t, "CREATE TABLE stock (sku varchar(20) PRIMARY KEY, units integer NOT NULL CHECK (units >= 0))")
				deadlocks := db.deadlocks(t)
				n := rounds(lanes)
				var tally staleTally
				var all sync.WaitGroup
				for i := range lanes {
					l := newLane(t, db, fmt.Sprintf("sku%d", i))
					all.Go(func() {
						for round := i; round < n && !t.Failed(); round += lanes {
							l.round(t, at, round, &tally)
						}
					})
				}
				all.Wait()
				tally.report(t, n, at)
				for i := range lanes {
					sku := fmt.Sprintf("sku%d", i)
					sold := db.do(t, "SELECT count(*) FROM effects WHERE job = '"+sku+"'")
					if left := db.do(t, fmt.Sprintf("SELECT units + %s - %d FROM stock WHERE sku = '%s'", sold, staleUnits, sku)); left != "0" {
						t.Errorf("%s: %s sold, and the stock is %s units off", sku, sold, left)
					}
				}
				if twice := db.do(t, "SELECT count(*) FROM (SELECT 1 AS one FROM effects GROUP BY job, due HAVING count(*) > 1) AS twice"); twice != "0" {
					t.Errorf("%s effects happened more than once", twice)
				}
				if now := db.deadlocks(t); now != deadlocks {
					t.Errorf("deadlocks: %s before, %s now", deadlocks, now)
				}
			})
		}
	}
}

func newLane(t *testing.T, db *target, name string) *lane {
	t.Helper()
	db.do(t, fmt.Sprintf("INSERT INTO stock VALUES ('%s', %d)", name, staleUnits))
	tap, tapped := newTap(t, db.url)
	return &lane{db: db, name: name, tap: tap, old: newWorker(t, tapped), new: newWorker(t, db.url)}
}

// order is a run of a tick of the lane's job, which sells one.
func (l *lane) order(run int, due time.Time, lease time.Duration, between ...string) order {
	statements := append(jobs.Strings{"INSERT INTO effects VALUES (:job, :due, :run_id, :fence)"}, between...)
	statements = append(statements, "UPDATE stock SET units = units - 1 WHERE sku = :job")
	h := holdOf(int64(run), jobs.Fence(run), jobs.Step{Name: "sell", Target: "shop", SQL: statements})
	h.Run.Job, h.Run.Due = l.name, due
	h.Run.Lock = fmt.Sprintf("%s-%d", l.name, (run-1)/(4*lanes)) // a new one every other round
	return order{h.Job, h.Run, lease}
}

// round stops the owner at a place, has another replica proceed, and wakes the
// owner: the other is through in time, and what the owner had not written by then
// it never writes.
func (l *lane) round(t *testing.T, at place, round int, tally *staleTally) {
	marks := at.marks[l.db.kind]
	m := marks[round%len(marks)]
	late := at.sleep == nil && rand.N(2) == 0
	stopped, woken := make(chan struct{}), make(chan struct{})
	l.tap.set(&trap{m.text, m.times, func(_ *line, pass func()) {
		l.old.stop()
		if !late {
			pass()
		}
		close(stopped)
		<-woken
		if late {
			pass()
		}
	}})
	due := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC).Add(time.Duration(round) * time.Hour)
	first := 2*round + 1
	l.old.begin(t, l.order(first, due, oldLease, at.sleep[l.db.kind]...))
	ended := make(chan jobs.Outcome, 1)
	go func() { ended <- l.old.end(t) }()
	select {
	case <-stopped:
	case got := <-ended:
		t.Errorf("%s, round %d: was never stopped at %q: %+v", l.name, round, m.text, got)
		return
	}
	next := due // the same tick again, or the next one
	if rand.N(2) == 0 {
		next = due.Add(time.Minute)
	}
	begun := time.Now()
	l.new.begin(t, l.order(first+1, next, newLease))
	got := l.new.end(t)
	waited := time.Since(begun)
	byThen := l.effects(t, first)
	l.old.wake()
	close(woken)
	stale := <-ended

	where := fmt.Sprintf("%s, round %d, stopped at %q %v", l.name, round, m.text, late)
	want(t, got, jobs.Succeeded, "")
	if in := l.effects(t, first); in != byThen {
		t.Errorf("%s: the stale run had %s effects when the new one was through, and %s in the end", where, byThen, in)
	}
	landed := byThen == "1"
	if is := stale.Status == jobs.Succeeded; is != landed || stale.Status == jobs.Unknown {
		t.Errorf("%s: the stale run ended %s(%s): %s; its effect is there: %v", where, stale.Status, stale.Reason, stale.Error, landed)
	}
	if again := next.Equal(due) && landed; (l.effects(t, first+1) == "0") != again {
		t.Errorf("%s: the new run has %s effects; did it find the stale one's: %v", where, l.effects(t, first+1), again)
	}
	tally.add(waited, landed)
}

func (l *lane) effects(t *testing.T, run int) string {
	return l.db.do(t, fmt.Sprintf("SELECT count(*) FROM effects WHERE job = '%s' AND run = %d", l.name, run))
}

// deadlocks is how many the server has resolved so far.
func (db *target) deadlocks(t *testing.T) string {
	if db.kind == "mysql" {
		return db.do(t, "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_DEADLOCKS'")
	}
	return db.do(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
}

// A staleTally counts how the rounds went.
type staleTally struct {
	mu     sync.Mutex
	waits  []time.Duration
	landed int
}

func (s *staleTally) add(waited time.Duration, landed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, waited)
	if landed {
		s.landed++
	}
}

// report fails if a new owner waited for longer than it may, and a busy machine
// takes besides.
func (s *staleTally) report(t *testing.T, n int, at place) {
	if len(s.waits) != n {
		t.Fatalf("%d rounds of %d", len(s.waits), n)
	}
	slices.Sort(s.waits)
	longest, limit := s.waits[n-1], oldLease
	if at.sleep != nil {
		limit = atWork
	}
	if longest > limit+3*time.Second {
		t.Errorf("a new owner waited %s, where %s is the most", longest, limit)
	}
	t.Logf("%d rounds: the owner's effect had landed in %d; the new owner waited %s in the median, %s at most",
		n, s.landed, s.waits[n/2].Round(time.Millisecond), longest.Round(time.Millisecond))
}

func TestOlderRunDoesNotEndANewerOneThatIsInItsWay(t *testing.T) {
	t.Parallel()
	for kind, at := range map[string]struct{ work, seen string }{
		"postgres": {"SELECT pg_sleep(2)", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'SELECT pg_sleep(2)'"},
		"mysql":    {"DO sleep(2)", "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND info = 'DO sleep(2)'"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := newTarget(t, kind)
			begun := make(chan jobs.Outcome, 1)
			go func() { begun <- db.run(t, holdOf(2, 8, sqlStep(insert, at.work))) }()
			eventually(t, "the newer run is at work", func() bool { return db.do(t, at.seen) == "1" })
			old := holdOf(1, 7, sqlStep(insert))
			old.Validity = func() time.Duration { return 300 * time.Millisecond }
			old.Run.Due = due.Add(-time.Minute)
			want(t, db.run(t, old), jobs.Failed, jobs.ReasonLeaseLost, "fenced off")
			want(t, <-begun, jobs.Succeeded, "")
			wantEffects(t, db, "1")
		})
	}
}

func TestFirstRunsOfManyLocksMayFailAtOnceWithoutADeadlock(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := newTarget(t, kind)
			others := *db
			others.exec = executor(t, db.url)
			var all, arrived sync.WaitGroup
			thaw := make(chan struct{})
			for i := range 8 {
				of := func(run int64, lock int) steps.Hold {
					h := holdOf(run, jobs.Fence(run), sqlStep(insert))
					h.Run.Job = fmt.Sprint("job", lock)
					h.Run.Lock = h.Run.Job
					return h
				}
				old, here, melt := frozen(of(1, i), 10*time.Second)
				validity := old.Validity
				old.Validity = func() time.Duration {
					left := validity()
					select {
					case <-thaw:
						return -time.Second
					default:
						return left
					}
				}
				arrived.Add(1)
				all.Go(func() { want(t, db.run(t, old), jobs.Failed, jobs.ReasonLeaseLost) })
				all.Go(func() {
					<-here
					all.Go(func() { want(t, others.run(t, of(2, i)), jobs.Succeeded, "") })
					arrived.Done()
					<-thaw
					close(melt)
				})
			}
			arrived.Wait()
			eventually(t, "the newer runs wait", func() bool { return db.do(t, waiting[kind]) == "8" })
			close(thaw)
			all.Wait()
			wantEffects(t, db, "8")
		})
	}
}

// waiting counts the runs that wait for another to leave its fence.
var waiting = map[string]string{
	"postgres": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
	"mysql":    "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND info LIKE '%quorate_fence%' AND id <> connection_id()",
}
