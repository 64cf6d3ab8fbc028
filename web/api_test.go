package web

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

func TestTheOpenAPIDocumentListsEveryRouteOfTheAPI(t *testing.T) {
	h := newHouse(t)
	w := ask(h, "GET", "/api/v1/openapi.json", bearer)
	var doc struct {
		OpenAPI  string
		Paths    map[string]map[string]struct{ OperationID, Summary string }
		Security []map[string][]string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || len(doc.Security) == 0 {
		t.Errorf("version %q, security %v", doc.OpenAPI, doc.Security)
	}
	ids := map[string]bool{}
	for _, r := range h.routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		if !strings.HasPrefix(path, "/api/") || strings.HasSuffix(path, "openapi.json") {
			continue
		}
		op, ok := doc.Paths[path][strings.ToLower(method)]
		if !ok || op.Summary == "" || op.OperationID == "" || ids[op.OperationID] {
			t.Errorf("%s is described as %+v", r.pattern, op)
		}
		ids[op.OperationID] = true
	}
	if len(ids) != 7 {
		t.Errorf("%d operations, want 7", len(ids))
	}
}

// The names of a run's fields are a promise to scripts.
func TestARunKeepsItsNames(t *testing.T) {
	at := time.Date(2026, 11, 21, 9, 0, 0, 5e8, time.FixedZone("", 3600))
	full := runJSON(jobs.Run{
		ID: 7, Job: "restock", Due: at, Attempt: 1, Trigger: jobs.TriggerSchedule, Status: jobs.Failed, Reason: jobs.ReasonStep,
		Error: "e", Lock: "l", Fence: 3, Replica: "a", Revision: "r", Started: at, Finished: at, LeaseUntil: at,
		Evidence: jobs.Evidence{Votes: 5, Masters: 5, Granted: 9897 * time.Millisecond, Lowest: 5 * time.Second, Left: 6 * time.Second, Extensions: 1},
		Steps:    []jobs.StepRun{{Name: "s", Kind: "sql", Status: jobs.Failed, Started: at, Finished: at, Rows: 2, Output: "o", Error: "e"}},
	})
	const want = `{"id":7,"job":"restock","due":"2026-11-21T08:00:00.5Z","attempt":1,"trigger":"schedule","status":"failed",` +
		`"reason":"step","error":"e","replica":"a","fence":3,"lock":"l","revision":"r",` +
		`"started":"2026-11-21T08:00:00.5Z","finished":"2026-11-21T08:00:00.5Z","lease_until":"2026-11-21T08:00:00.5Z",` +
		`"evidence":{"votes":5,"masters":5,"granted_ms":9897,"lowest_ms":5000,"left_ms":6000,"extensions":1},` +
		`"steps":[{"index":0,"name":"s","kind":"sql","status":"failed","started":"2026-11-21T08:00:00.5Z","finished":"2026-11-21T08:00:00.5Z","rows":2,"output":"o","error":"e"}]}`
	if got, _ := json.Marshal(full); string(got) != want {
		t.Errorf("a run is\n%s\nwant\n%s", got, want)
	}
	missed := runJSON(jobs.Run{ID: 8, Job: "restock", Due: at, Attempt: 1, Trigger: jobs.TriggerSchedule, Status: jobs.Missed, Reason: jobs.ReasonNoQuorum})
	const never = `{"id":8,"job":"restock","due":"2026-11-21T08:00:00.5Z","attempt":1,"trigger":"schedule","status":"missed","reason":"no_quorum","replica":"","fence":0,"started":null,"finished":null}`
	if got, _ := json.Marshal(missed); string(got) != never {
		t.Errorf("a tick that never ran is\n%s\nwant\n%s", got, never)
	}
}

func TestWhatTheAPIDoesNotKnowItRefuses(t *testing.T) {
	h := newHouse(t)
	for path, want := range map[string]int{
		"/api/v1/runs?limit=1001": 422, "/api/v1/runs?limit=0": 422, "/api/v1/runs?status=odd": 422, "/api/v1/runs?jobb=a": 422,
		"/api/v1/runs?since=yesterday": 422, "/api/v1/runs/zero": 422, "/api/v1/runs/0": 422, "/api/v1/runs/99": 404,
		"/api/v1/jobs/nothing": 404, "/runs/zero": 404, "/runs/99": 404, "/static/../server.go": 307, "/static/layout.html": 404,
	} {
		w := ask(h, "GET", path, bearer)
		if w.Code != want {
			t.Errorf("GET %s answers %d, want %d", path, w.Code, want)
		}
		if got := w.Header().Get("Content-Type"); want == 422 && got != "application/problem+json" {
			t.Errorf("GET %s answers in %s", path, got)
		}
	}
	if w := ask(h, "POST", "/api/v1/jobs/nothing/runs", bearer); w.Code != 404 || !strings.Contains(w.Body.String(), "quick, slow") {
		t.Errorf("running a job that is not there answers %d %s", w.Code, w.Body)
	}
}

func TestAManualRunIsAnsweredAsSoonAsItHasItsRow(t *testing.T) {
	h := newHouse(t)
	w := ask(h, "POST", "/api/v1/jobs/slow/runs", bearer)
	var run Run
	if err := json.Unmarshal(w.Body.Bytes(), &run); err != nil || w.Code != http.StatusCreated || run.Status != "running" {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	if kept, err := h.sqlite.Run(t.Context(), run.ID); err != nil || kept.Job != "slow" {
		t.Errorf("its row is %+v, %v", kept, err)
	}
}

func TestPagesOfRunsLeadToTheNext(t *testing.T) {
	h := newHouse(t)
	hist := &history{t: t, store: &lateStore{Store: h.sqlite, hidden: map[int64]bool{}}}
	for range 25 {
		hist.miss()
	}
	var ids []int64
	path := "/api/v1/runs?limit=10"
	for path != "" {
		var page struct {
			Runs []Run
			Next int64
		}
		json.Unmarshal(ask(h, "GET", path, bearer).Body.Bytes(), &page)
		for _, r := range page.Runs {
			ids = append(ids, r.ID)
		}
		path = ""
		if page.Next > 0 {
			path = "/api/v1/runs?limit=10&" + RunFilter{Before: page.Next}.query().Encode()
		}
	}
	if len(ids) != 25 || !slices.IsSortedFunc(ids, func(a, b int64) int { return int(b - a) }) {
		t.Errorf("the pages hold %v", ids)
	}
}

func TestReadinessNamesWhatIsMissing(t *testing.T) {
	h := newHouse(t)
	ready := func() (int, readiness) {
		w := ask(h, "GET", "/readyz")
		var r readiness
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		return w.Code, r
	}
	if code, r := ready(); code != 200 || !r.Ready || r.Voting != 5 {
		t.Fatalf("a whole house is %d %+v", code, r)
	}
	h.masters.Close()
	deadline := time.Now().Add(20 * time.Second)
	for code := 200; code == 200 && time.Now().Before(deadline); code, _ = ready() {
	}
	if code, r := ready(); code != 503 || r.Ready || len(r.Reasons) != 1 || !strings.HasPrefix(r.Reasons[0], "quorum: ") {
		t.Errorf("without masters it is %d %+v", code, r)
	}
	h.cfg.Store = awayStore{h.cfg.Store}
	code, r := ready()
	if code != 503 || len(r.Reasons) != 2 || !strings.HasPrefix(r.Reasons[1], "store: ") {
		t.Errorf("without a store too it is %d %+v", code, r)
	}
	for _, reason := range r.Reasons {
		if strings.Contains(reason, "127.0.0.1") || strings.Contains(reason, "canary") {
			t.Errorf("%q is told to everyone", reason)
		}
	}
	if w := ask(h, "GET", "/healthz"); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("the process lives, and /healthz answers %d %q", w.Code, w.Body)
	}
}

func TestMetricsCountWhatEnded(t *testing.T) {
	h := newHouse(t)
	due := time.Now()
	run := jobs.Run{
		Job: "restock", Due: due, Attempt: 1, Trigger: jobs.TriggerSchedule, Status: jobs.Succeeded,
		Started: due.Add(200 * time.Millisecond), Finished: due.Add(700 * time.Millisecond),
		Evidence: jobs.Evidence{Votes: 5, Masters: 5, Left: 9 * time.Second},
	}
	h.Ended(run)
	run.Trigger = jobs.TriggerManual // its lag means nothing
	h.Ended(run)
	h.Ended(jobs.Run{Job: "restock", Due: due, Status: jobs.Missed, Reason: jobs.ReasonNoQuorum})
	lost := run
	lost.Status, lost.Reason = jobs.Unknown, jobs.ReasonReplicaLost
	h.Ended(lost)

	text := ask(h, "GET", "/metrics", bearer).Body.String()
	for _, line := range []string{
		`quorate_runs_total{job="restock",reason="",status="succeeded"} 2`,
		`quorate_runs_total{job="restock",reason="no_quorum",status="missed"} 1`,
		`quorate_runs_total{job="restock",reason="replica_lost",status="unknown"} 1`,
		`quorate_run_duration_seconds_count{job="restock"} 2`,
		`quorate_run_lag_seconds_sum{job="restock"} 0.2`,
		`quorate_run_lag_seconds_count{job="restock"} 1`,
		`quorate_validity_left_seconds_sum 18`,
		`quorate_masters_up 5`, `quorate_masters 5`,
		`version="test"} 1`, `go_goroutines `, `process_start_time_seconds `,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

func TestQuarantinedAndDeadMastersDoNotVote(t *testing.T) {
	h := newHouse(t)
	status := h.cfg.Scheduler.Masters()
	status[0].Err = http.ErrServerClosed
	status[1].Quarantined = time.Now().Add(time.Minute)
	status[2].Quarantined = time.Now().Add(-time.Minute) // it is over
	masters, voting := mastersJSON(status, time.Now())
	if voting != 3 {
		t.Errorf("%d vote, want 3", voting)
	}
	states := map[string]int{}
	for _, m := range masters {
		states[m.State]++
	}
	if want := map[string]int{"down": 1, "quarantined": 1, "up": 3}; !maps.Equal(states, want) {
		t.Errorf("states are %v, want %v", states, want)
	}
}

var _ store.Store = awayStore{}
