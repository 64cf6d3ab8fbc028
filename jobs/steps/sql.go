package steps

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"quorate/jobs"
)

// A database is a target of SQL steps. It has three bodies.
type database interface {
	rules() *dialect
	prepare(ctx context.Context) error
	check(ctx context.Context) error
	close()

	// begin makes a connection and opens a transaction for an effect.
	begin(ctx context.Context, e effect, how terms) (transaction, error)
}

// Terms are what a transaction is opened on.
type terms struct {
	patience  time.Duration // how long the server waits for a word of us, and we for an older run
	isolation string        // of SQL, or nothing for what the target does by itself
	loose     bool          // no transaction at all: only exec and close are of use then
}

// A transaction is what one SQL step does.
type transaction interface {
	// guard raises the fence of the lock and writes the marker of the effect. A
	// transaction of an older run that is open still is waited for, and after our
	// patience ended: its run was given up when ours was claimed. If the effect has
	// its marker already, earlier says whose.
	guard(ctx context.Context) (earlier *marker, err error)

	// exec runs one statement, and returns how many rows it changed. Rows that it
	// read are shown in the table, and not counted.
	exec(ctx context.Context, s statement, run jobs.Run, show *table) (int64, error)

	// commit may be told a result that never came: then landed is asked, on a new
	// connection, until it knows.
	commit(ctx context.Context) error
	landed(ctx context.Context) (bool, error)

	// abort rolls back. Its error says what had escaped the transaction.
	abort(ctx context.Context) error

	close()
}

// An effect is what may be committed once: a step of a tick.
type effect struct {
	marker
	job  string
	due  time.Time
	step string
	lock string
}

// A marker says which run committed an effect.
type marker struct {
	run   int64
	fence jobs.Fence
}

// A fencedError is how a target refuses a run whose lock was granted again.
type fencedError struct {
	lock       string
	ours, seen jobs.Fence
}

func (e *fencedError) Error() string {
	return fmt.Sprintf("fenced off: the target has seen lock %q granted under fence %d, and this run has %d; nothing was written", e.lock, e.seen, e.ours)
}

// errEscaped: a part of the effect is there whatever we do now.
var errEscaped = errors.New("a statement has ended the transaction from within (a procedure that commits, or changes tables): what came before it is committed, what came after it ran without the fence")

// errUndecided: a lost COMMIT is neither done nor undone yet.
var errUndecided = errors.New("the transaction is open still")

const (
	defaultLookUp = 10 * time.Second
	lookUpPause   = 100 * time.Millisecond
	abortLimit    = 5 * time.Second
	maxPatience   = 5 * time.Second // how long a silent run may keep others from the fence; shorter than the look-up
	overtakePause = 100 * time.Millisecond
)

func (x *Executor) sql(ctx context.Context, hold Hold, step jobs.Step) (result, error) {
	db, err := x.Targets.get(step.Target)
	if err != nil {
		return result{}, err
	}
	list, err := db.rules().parseAll(step)
	if err != nil {
		return result{}, err
	}
	e := effect{
		marker: marker{run: hold.Run.ID, fence: hold.Run.Fence},
		job:    hold.Run.Job,
		due:    hold.Run.Due.UTC().Truncate(time.Microsecond),
		step:   step.Name,
		lock:   hold.Run.Lock,
	}
	tx, err := db.begin(ctx, e, terms{
		patience:  min(max(hold.Validity(), time.Second), maxPatience),
		isolation: step.Isolation,
		loose:     step.Loose(),
	})
	if err != nil {
		return result{}, named(step.Target, undone(err))
	}
	defer tx.close()
	if step.Loose() {
		res, err := statements(ctx, hold, step, tx, list)
		return res, named(step.Target, err)
	}
	res, again, err := perform(ctx, hold, step, tx, list)
	if again {
		return res, nil
	}
	if err != nil {
		rollback, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortLimit)
		defer cancel()
		if escaped := tx.abort(rollback); escaped != nil {
			return res, unknown("%w (%w)", escaped, err)
		}
		return res, named(step.Target, undone(err))
	}
	return res, named(step.Target, x.commit(ctx, tx))
}

// perform does all that a step does before its COMMIT. Again says that an earlier
// run has done it already.
func perform(ctx context.Context, hold Hold, step jobs.Step, tx transaction, list []statement) (res result, again bool, err error) {
	earlier, err := tx.guard(ctx)
	if err != nil {
		return res, false, err
	}
	if earlier != nil {
		return result{output: fmt.Sprintf("already done by run %d (fence %d)", earlier.run, earlier.fence)}, true, nil
	}
	if res, err = statements(ctx, hold, step, tx, list); err != nil {
		return res, false, err
	}
	// The one check that counts is the fence, whose row we hold locked until COMMIT.
	// This one only spares the target the work of a run that has lost its lease.
	return res, false, hold.check(ctx)
}

// statements runs those of a step, and sees whether they have changed what they should.
func statements(ctx context.Context, hold Hold, step jobs.Step, tx transaction, list []statement) (res result, err error) {
	var show table
	for i, s := range list {
		rows, err := tx.exec(ctx, s, hold.Run, &show)
		res.rows += rows
		res.output = show.b.String()
		if err != nil {
			if len(list) > 1 {
				err = fmt.Errorf("statement %d of %d: %w", i+1, len(list), err)
			}
			return res, err
		}
	}
	if want := step.ExpectRows; want != nil && *want != res.rows {
		return res, fmt.Errorf("changed %d rows where expect_rows = %d", res.rows, *want)
	}
	return res, nil
}

// overtaking does what may have to wait for an older run, and from the end of our
// patience on clears the way again and again. It returns when neither is at work.
func overtaking(ctx context.Context, patience time.Duration, clear func(context.Context), do func() error) error {
	ctx, done := context.WithCancel(ctx)
	var clearing sync.WaitGroup
	defer clearing.Wait()
	defer done()
	clearing.Go(func() {
		for wait := patience; ; wait = overtakePause {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
				clear(ctx)
			}
		}
	})
	return do()
}

// commit is out of reach of the context: once COMMIT is sent, giving up early would
// only exchange an answer for a question.
func (x *Executor) commit(ctx context.Context, tx transaction) error {
	bound := x.LookUp
	if bound <= 0 {
		bound = defaultLookUp
	}
	ctx = context.WithoutCancel(ctx)
	answer, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	lost := tx.commit(answer)
	var escaped *unknownError
	if lost == nil || errors.As(lost, &escaped) {
		return lost
	}
	tx.close()

	ctx, cancel = context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		landed, err := tx.landed(ctx)
		switch {
		case err == nil && landed:
			return nil
		case err == nil:
			return undone(fmt.Errorf("not committed: %w", lost))
		}
		select {
		case <-ctx.Done():
			return unknown("the answer to COMMIT never came (%w), and could not be looked up within %s: %w", lost, bound, err)
		case <-time.After(lookUpPause):
		}
	}
}
