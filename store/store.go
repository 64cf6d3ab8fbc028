// Package store says what it means to keep runs; postgres and sqlite do it.
//
// The store is the truth. A tick is ours when [Store.Claim] says so and not
// before: one row per (job, due, attempt), and one running run per lock, whatever
// the locks outside believe. Both bodies have the same meaning and pass the same
// suite (storetest).
//
// What may live here: the interface, what goes in and out of it, and its errors.
// What may not: SQL, a driver, a decision about jobs.
package store

import (
	"context"
	"errors"
	"time"

	"quorate/jobs"
)

// Errors that a caller branches on. Everything else is a fault of the store.
var (
	// ErrClaimed: the tick has its row already; another replica was first.
	ErrClaimed = errors.New("tick has its run already")
	// ErrOverlap: the lock has a running run whose lease has not ended.
	ErrOverlap = errors.New("lock has a running run")
	// ErrRevision: another revision of the jobs is the active one.
	ErrRevision = errors.New("another revision of the jobs is active")
	// ErrFenced: the run is not ours to change any more: it has ended, or its
	// lock was granted again under a higher fence.
	ErrFenced = errors.New("run has ended or was fenced off")
	// ErrNotFound: there is no such run.
	ErrNotFound = errors.New("no such run")
	// ErrAway: the store cannot be reached, or its answer was lost. A call that
	// writes may have been written: ask again.
	ErrAway = errors.New("store cannot be reached")
)

// A Claim asks for a tick.
type Claim struct {
	Tick     jobs.Tick
	Replica  string
	Revision string
	Token    string        // random; a claim that is repeated with it finds the run that it began
	Lease    time.Duration // how long until the run counts as lost, unless renewed
	Evidence jobs.Evidence
}

// A Renewal asks for more time for a running run.
type Renewal struct {
	Run   int64
	Lock  string
	Lease time.Duration // from now
}

// A Filter picks runs for a list, newest first. Zero fields do not filter.
type Filter struct {
	Job    string
	Status jobs.Status
	Since  time.Time // due at or after
	Before int64     // runs with a smaller id: the next page
	After  int64     // runs with a greater id, oldest first: for following
	Limit  int       // at most; 0 means 50, and 1000 is the most
}

// A JobState is what the store knows of a job.
type JobState struct {
	Name     string
	Schedule string    // the spec that Since belongs to
	Since    time.Time // ticks are accounted for from here on
}

// A Replica is one process of ours, as it last reported.
type Replica struct {
	Name     string
	Revision string
	Started  time.Time
	Seen     time.Time // by the store's clock
	Live     bool      // seen within the last 15 seconds
}

// A Store keeps runs. All methods may be called concurrently. A method whose
// store cannot be reached returns an error that is ErrAway, within the context's
// deadline.
type Store interface {
	// Claim makes the tick ours, or says why not: ErrClaimed, ErrOverlap,
	// ErrRevision. It mints the fence and inserts the run as running. A run in the
	// way whose lease ended by the store's clock is closed as unknown(replica_lost)
	// in passing. A claim whose answer was lost is repeated with the same token: it
	// finds the run that it began, while that still runs.
	Claim(ctx context.Context, c Claim) (jobs.Run, error)

	// Renew moves the leases of this replica's running runs, in one statement, and
	// returns the ids that are no longer ours to renew.
	Renew(ctx context.Context, replica string, runs ...Renewal) (lost []int64, err error)

	// Finish writes how a claimed run ended, its steps with it, guarded by its
	// fence and by being still running: ErrFenced otherwise. Repeating a Finish
	// whose answer was lost succeeds.
	Finish(ctx context.Context, run jobs.Run, outcome jobs.Outcome) (jobs.Run, error)

	// Record writes ticks that never ran: each as a row that is skipped or missed,
	// with its reason. A tick that has a row keeps the one that it has. It returns
	// the rows that were written now.
	Record(ctx context.Context, ended ...jobs.Run) ([]jobs.Run, error)

	// Reap closes running runs whose lease ended by the store's clock, as
	// unknown(replica_lost), and returns them.
	Reap(ctx context.Context) ([]jobs.Run, error)

	// Run returns one run with its steps: ErrNotFound where there is none.
	Run(ctx context.Context, id int64) (jobs.Run, error)

	// Runs lists runs, without their steps.
	Runs(ctx context.Context, f Filter) ([]jobs.Run, error)

	// Latest returns the newest run of each job that has one.
	Latest(ctx context.Context) (map[string]jobs.Run, error)

	// Dues returns which instants of [from, to] have a row for this job.
	Dues(ctx context.Context, job string, from, to time.Time) ([]time.Time, error)

	// Activate makes a revision of the jobs the one that alone may claim and
	// register, from now on; runs of another that are under way go on. Active
	// returns it: none is, and any may, until Activate is called.
	Activate(ctx context.Context, revision string) error
	Active(ctx context.Context) (revision string, err error)

	// Register tells which jobs there are and how they are scheduled. A job that is
	// new, or whose schedule changed, is accounted for from now on; the others keep
	// their Since. It returns the states of all the named jobs, or ErrRevision.
	Register(ctx context.Context, revision string, jobs ...JobState) ([]JobState, error)

	// Beat reports that a replica lives; Replicas lists those seen within a day.
	Beat(ctx context.Context, r Replica) error
	Replicas(ctx context.Context) ([]Replica, error)

	// Now is the store's clock.
	Now(ctx context.Context) (time.Time, error)

	// Migrate brings the schema up to date; any number of processes may do so at
	// once. Status says how far it is.
	Migrate(ctx context.Context) error
	Status(ctx context.Context) (MigrationStatus, error)

	Close()
}

// MigrationStatus says how far the schema of a store is.
type MigrationStatus struct {
	Applied int // the newest migration that the store has
	Known   int // the newest that this binary has
}
