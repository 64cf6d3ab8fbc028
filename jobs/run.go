package jobs

import "time"

// A Status says where a tick has ended, or that it has not yet.
type Status string

const (
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Skipped   Status = "skipped" // we decided not to: the reason says why
	Missed    Status = "missed"  // we could not: the reason says why
	Unknown   Status = "unknown" // it was begun, and nobody can say how it ended
)

// Final reports whether a run with this status can still change.
func (s Status) Final() bool { return s != Running }

// A Reason is one word for why a run ended as it did.
type Reason string

const (
	ReasonNone        Reason = ""
	ReasonOverlap     Reason = "overlap"      // skipped: an earlier run held the lock
	ReasonLate        Reason = "late"         // missed: older than start_deadline when it could begin
	ReasonNoQuorum    Reason = "no_quorum"    // missed: too few masters answered
	ReasonNoStore     Reason = "no_store"     // missed: the store could not be reached
	ReasonNoReplica   Reason = "no_replica"   // missed: no replica was up, or none got to it
	ReasonStep        Reason = "step"         // failed: a step failed
	ReasonTimeout     Reason = "timeout"      // failed: the job's timeout was reached
	ReasonLeaseLost   Reason = "lease_lost"   // failed: the lease ended before the work did
	ReasonShutdown    Reason = "shutdown"     // failed: the replica was stopped
	ReasonReplicaLost Reason = "replica_lost" // unknown: the replica vanished during the run
	ReasonOutcome     Reason = "outcome"      // unknown: an effect was begun and its answer never came
)

// A Fence is a number that the store mints when it grants a claim. It grows with
// each claim of a lock, so a database that has seen a higher one refuses the lower.
type Fence int64

// A Run is what became of one tick: the row that the store keeps of it.
type Run struct {
	ID       int64
	Job      string
	Due      time.Time
	Attempt  int
	Trigger  Trigger
	Status   Status
	Reason   Reason
	Error    string
	Lock     string
	Fence    Fence
	Replica  string
	Revision string
	Params   Params

	Started    time.Time // when it was claimed; zero for a tick that never ran
	Finished   time.Time // zero while it runs
	LeaseUntil time.Time // by the store's clock
	Evidence   Evidence

	Steps []StepRun // filled in where one run is asked for, not in lists
}

// Evidence says how good the lock was under which a run worked.
type Evidence struct {
	Votes      int           // masters that granted the lease
	Masters    int           // masters that were asked
	Granted    time.Duration // validity when the lease was granted
	Lowest     time.Duration // the lowest that validity fell to
	Left       time.Duration // validity when the last step had ended
	Extensions int
}

// A StepRun is what became of one step of a run.
type StepRun struct {
	Index    int
	Name     string
	Kind     string
	Status   Status
	Started  time.Time
	Finished time.Time
	Rows     int64  // rows changed, for an SQL step
	Output   string // what it printed or answered, capped
	Error    string
}

// An Outcome is how a run ended.
type Outcome struct {
	Status   Status
	Reason   Reason
	Error    string
	Steps    []StepRun
	Evidence Evidence
}
