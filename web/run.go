package web

import (
	"time"

	"quorate/jobs"
	"quorate/redlock"
	"quorate/store"
)

// A Run is a run as the API tells it: in lists, in the stream, to the client, and
// on each line of `quorate runs --json`. Its names and their meaning are a promise;
// fields may be added, never renamed.
//
// Times are RFC 3339 in UTC. What has not happened is null or zero: a tick that
// never ran has a null started, fence 0 and no evidence.
type Run struct {
	ID         int64      `json:"id" doc:"Number of the run; grows"`
	Job        string     `json:"job"`
	Due        time.Time  `json:"due" doc:"The instant at which the job was due"`
	Attempt    int        `json:"attempt" doc:"1 for the first"`
	Trigger    string     `json:"trigger" doc:"What made the tick: schedule, manual"`
	Status     string     `json:"status" enum:"running,succeeded,failed,skipped,missed,unknown"`
	Reason     string     `json:"reason" doc:"One word for why it ended so: overlap, late, no_quorum, step, timeout, lease_lost, replica_lost…"`
	Error      string     `json:"error,omitempty"`
	Replica    string     `json:"replica" doc:"The replica that ran it, or recorded it"`
	Fence      int64      `json:"fence" doc:"Grows with each run of the lock; a database that saw a higher one refuses this run"`
	Lock       string     `json:"lock,omitempty"`
	Revision   string     `json:"revision,omitempty" doc:"Hash of the jobs as they were configured"`
	Started    *time.Time `json:"started" nullable:"true"`
	Finished   *time.Time `json:"finished" nullable:"true"`
	LeaseUntil *time.Time `json:"lease_until,omitempty" doc:"By the store's clock; a running run whose lease has ended counts as lost"`
	Evidence   *Evidence  `json:"evidence,omitempty" doc:"How good the lock was under which it worked"`
	Steps      []Step     `json:"steps,omitempty" nullable:"false" doc:"Where one run is asked for; lists leave them out"`
}

// Evidence says how good the lock was: votes of how many masters, and for how long
// it could be trusted.
type Evidence struct {
	Votes      int   `json:"votes" doc:"Masters that granted the lease"`
	Masters    int   `json:"masters" doc:"Masters that were asked"`
	GrantedMS  int64 `json:"granted_ms" doc:"Validity when the lease was granted"`
	LowestMS   int64 `json:"lowest_ms" doc:"The lowest that validity fell to"`
	LeftMS     int64 `json:"left_ms" doc:"Validity when the last step had ended"`
	Extensions int   `json:"extensions"`
}

// A Step is what became of one step of a run.
type Step struct {
	Index    int        `json:"index"`
	Name     string     `json:"name"`
	Kind     string     `json:"kind" doc:"sql, http, command or func"`
	Status   string     `json:"status"`
	Started  *time.Time `json:"started,omitempty"`
	Finished *time.Time `json:"finished,omitempty"`
	Rows     int64      `json:"rows,omitempty" doc:"Rows changed, for an SQL step"`
	Output   string     `json:"output,omitempty" doc:"What it printed or answered, capped"`
	Error    string     `json:"error,omitempty"`
}

// A Job is what is configured, when it is due next, and how it went last.
type Job struct {
	Name        string      `json:"name"`
	Description string      `json:"description,omitempty"`
	Schedule    string      `json:"schedule,omitempty" doc:"Absent for a job that runs by hand only"`
	Next        []time.Time `json:"next,omitempty" nullable:"false" doc:"The next instants at which it is due"`
	Lock        string      `json:"lock"`
	Overlap     string      `json:"overlap" enum:"skip,queue,allow"`
	Revision    string      `json:"revision" doc:"Hash of all that it says"`
	Latest      *Run        `json:"latest,omitempty"`

	Definition map[string]string `json:"definition,omitempty" doc:"What it says, by key, without secrets; where one job is asked for"`
}

// A Cluster is who takes part: the replicas, and the masters that vote.
type Cluster struct {
	Replica  string    `json:"replica" doc:"The replica that answers"`
	Revision string    `json:"revision" doc:"Hash of its jobs"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Voting   int       `json:"voting" doc:"Masters that can vote"`
	Quorum   int       `json:"quorum" doc:"Votes that a lock needs"`
	Replicas []Replica `json:"replicas" nullable:"false"`
	Masters  []Master  `json:"masters" nullable:"false"`
}

// A Replica is one process, as it last reported to the store.
type Replica struct {
	Name     string    `json:"name"`
	Revision string    `json:"revision"`
	Started  time.Time `json:"started"`
	Seen     time.Time `json:"seen"`
	Live     bool      `json:"live"`
}

// A Master is one of the Redis masters, as the answering replica sees it.
type Master struct {
	Name        string     `json:"name"`
	State       string     `json:"state" enum:"up,quarantined,down"`
	Role        string     `json:"role,omitempty"`
	RunID       string     `json:"run_id,omitempty" doc:"Which life of the server this is"`
	Version     string     `json:"version,omitempty"`
	RoundTripMS float64    `json:"round_trip_ms,omitempty"`
	Quarantined *time.Time `json:"quarantined_until,omitempty" doc:"It votes on new locks again from then on"`
	Why         string     `json:"why,omitempty" doc:"Why it does not vote"`
}

func runJSON(r jobs.Run) Run {
	out := Run{
		ID: r.ID, Job: r.Job, Due: r.Due.UTC(), Attempt: r.Attempt, Trigger: string(r.Trigger),
		Status: string(r.Status), Reason: string(r.Reason), Error: r.Error,
		Replica: r.Replica, Fence: int64(r.Fence), Lock: r.Lock, Revision: r.Revision,
		Started: instant(r.Started), Finished: instant(r.Finished), LeaseUntil: instant(r.LeaseUntil),
	}
	if e := r.Evidence; e.Masters > 0 {
		out.Evidence = &Evidence{
			Votes: e.Votes, Masters: e.Masters, Extensions: e.Extensions,
			GrantedMS: e.Granted.Milliseconds(), LowestMS: e.Lowest.Milliseconds(), LeftMS: e.Left.Milliseconds(),
		}
	}
	for _, s := range r.Steps {
		out.Steps = append(out.Steps, Step{
			Index: s.Index, Name: s.Name, Kind: s.Kind, Status: string(s.Status),
			Started: instant(s.Started), Finished: instant(s.Finished),
			Rows: s.Rows, Output: s.Output, Error: s.Error,
		})
	}
	return out
}

func runsJSON(runs []jobs.Run) []Run {
	out := make([]Run, 0, len(runs))
	for _, r := range runs {
		out = append(out, runJSON(r))
	}
	return out
}

func jobJSON(j *jobs.Job, latest map[string]jobs.Run, now time.Time, ticks int) Job {
	out := Job{
		Name: j.Name, Description: j.Description, Schedule: j.Schedule().String(),
		Lock: j.Lock, Overlap: string(j.Overlap),
	}
	out.Revision, _ = jobs.Revision(j) // they could be hashed together
	for t := j.Schedule().Next(now); !t.IsZero() && len(out.Next) < ticks; t = j.Schedule().Next(t) {
		out.Next = append(out.Next, t)
	}
	if r, ran := latest[j.Name]; ran {
		run := runJSON(r)
		out.Latest = &run
	}
	return out
}

func replicasJSON(replicas []store.Replica) []Replica {
	out := make([]Replica, 0, len(replicas))
	for _, r := range replicas {
		out = append(out, Replica{r.Name, r.Revision, r.Started.UTC(), r.Seen.UTC(), r.Live})
	}
	return out
}

// mastersJSON also counts the masters that can vote on a new lock.
func mastersJSON(masters []redlock.Status, now time.Time) (out []Master, voting int) {
	out = make([]Master, 0, len(masters))
	for _, m := range masters {
		master := Master{
			Name: m.Name, State: "up", Role: m.Role, RunID: m.RunID, Version: m.Version, Why: m.Why,
			RoundTripMS: float64(m.RoundTrip.Microseconds()) / 1000,
		}
		switch {
		case m.Err != nil:
			master.State, master.Why = "down", m.Err.Error()
		case m.Quarantined.After(now):
			master.State, master.Quarantined = "quarantined", instant(m.Quarantined)
		default:
			voting++
		}
		out = append(out, master)
	}
	return out, voting
}

// quorum is how many of the configured masters must grant a lock.
func quorum(masters int) int { return masters/2 + 1 }

// instant is t in UTC, or nil for the zero time: what never happened is absent.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
