package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"quorate/jobs"
	"quorate/scheduler"
	"quorate/store"
)

// An operations is the mux that huma sees: it hands each operation to our own list
// of routes instead of serving it.
type operations func(pattern string, h http.HandlerFunc)

func (add operations) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	add(pattern, h)
}
func (operations) ServeHTTP(http.ResponseWriter, *http.Request) {}

// newAPI is huma without its own pages: /docs would load code from elsewhere.
func newAPI(version string, add operations) huma.API {
	if version == "" {
		version = "devel"
	}
	config := huma.DefaultConfig("quorate", version)
	config.OpenAPIPath, config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", "", nil
	config.RejectUnknownQueryParameters = true
	config.Info.Description = "Jobs, their runs, and the cluster that runs each of them once."
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	config.Security = []map[string][]string{{"token": {}}}
	return humago.New(add, config)
}

// describe registers an operation under its pattern. Errors of the rooms below
// become problems here, by the table in explain.
func describe[In, Out any](s *Server, api huma.API, pattern, summary string, answer func(context.Context, *In) (*Out, error)) {
	method, path, _ := strings.Cut(pattern, " ")
	op := huma.Operation{Method: method, Path: path, Summary: summary, OperationID: operationID(pattern)}
	if method == http.MethodPost {
		op.DefaultStatus = http.StatusCreated
		op.Middlewares = huma.Middlewares{patient}
	}
	huma.Register(api, op, func(ctx context.Context, in *In) (*Out, error) {
		out, err := answer(ctx, in)
		var settled huma.StatusError
		if err == nil || errors.As(err, &settled) {
			return out, err
		}
		status, detail := s.explain(err)
		return nil, huma.NewError(status, detail)
	})
}

var nameless = regexp.MustCompile(`[^a-z0-9]+`)

// operationID turns "GET /api/v1/jobs/{name}" into get-jobs-name.
func operationID(pattern string) string {
	words := strings.Replace(strings.ToLower(pattern), "/api/v1", "", 1)
	return strings.Trim(nameless.ReplaceAllString(words, "-"), "-")
}

// patient lifts the write deadline from a request that may have to wait for a lock;
// the job's start deadline bounds it.
func patient(ctx huma.Context, next func(huma.Context)) {
	_, w := humago.Unwrap(ctx)
	http.NewResponseController(w).SetWriteDeadline(time.Time{})
	next(ctx)
}

func openAPI(api huma.API) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		json.NewEncoder(w).Encode(api.OpenAPI())
	}
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail})
}

type jobsOut struct {
	Body struct {
		Jobs []Job `json:"jobs" nullable:"false"`
	}
}

func (s *Server) listJobs(ctx context.Context, _ *struct{}) (*jobsOut, error) {
	latest, err := s.cfg.Store.Latest(ctx)
	if err != nil {
		return nil, fmt.Errorf("latest runs: %w", err)
	}
	out := new(jobsOut)
	out.Body.Jobs = []Job{}
	for _, j := range s.cfg.Scheduler.Jobs() {
		out.Body.Jobs = append(out.Body.Jobs, jobJSON(j, latest, time.Now(), 3))
	}
	return out, nil
}

type jobIn struct {
	Name string `path:"name"`
}

type jobOut struct{ Body Job }

func (s *Server) getJob(ctx context.Context, in *jobIn) (*jobOut, error) {
	all := s.cfg.Scheduler.Jobs()
	i := slices.IndexFunc(all, func(j *jobs.Job) bool { return j.Name == in.Name })
	if i < 0 {
		return nil, fmt.Errorf("job %q: %w", in.Name, scheduler.ErrNoJob)
	}
	latest, err := s.cfg.Store.Runs(ctx, store.Filter{Job: in.Name, Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("latest run of %s: %w", in.Name, err)
	}
	of := map[string]jobs.Run{}
	for _, r := range latest {
		of[r.Job] = r
	}
	out := jobOut{jobJSON(all[i], of, time.Now(), 10)}
	out.Body.Definition = all[i].Definition()
	return &out, nil
}

type runOut struct{ Body Run }

type runNowIn struct {
	Name string `path:"name"`
	Body *struct {
		Params map[string]any `json:"params,omitempty" doc:"Values of the job's parameters, by name; the others have their defaults"`
	}
}

func (s *Server) runNow(ctx context.Context, in *runNowIn) (*runOut, error) {
	var params map[string]any
	if in.Body != nil {
		params = in.Body.Params
	}
	run, err := s.cfg.Scheduler.RunNow(ctx, in.Name, params)
	if err != nil {
		return nil, err
	}
	s.log.Info("run by hand", "job", run.Job, "run", run.ID, "status", run.Status)
	return &runOut{runJSON(run)}, nil
}

type runsIn struct {
	Job    string    `query:"job" doc:"Only runs of this job"`
	Status string    `query:"status" enum:"running,succeeded,failed,skipped,missed,unknown"`
	Since  time.Time `query:"since" doc:"Due at this instant or later"`
	Before int64     `query:"before" minimum:"0" doc:"Runs with a smaller id: the next page"`
	After  int64     `query:"after" minimum:"0" doc:"Runs with a greater id, oldest first"`
	Limit  int       `query:"limit" minimum:"1" maximum:"1000" default:"50"`
}

type runsOut struct {
	Body struct {
		Runs []Run `json:"runs" nullable:"false"`
		Next int64 `json:"next,omitempty" doc:"Ask again with this as before (or as after, if that was given) for more"`
	}
}

func (s *Server) listRuns(ctx context.Context, in *runsIn) (*runsOut, error) {
	runs, err := s.cfg.Store.Runs(ctx, store.Filter{
		Job: in.Job, Status: jobs.Status(in.Status), Since: in.Since,
		Before: in.Before, After: in.After, Limit: in.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	out := new(runsOut)
	out.Body.Runs = runsJSON(runs)
	if len(runs) == in.Limit {
		out.Body.Next = runs[len(runs)-1].ID
	}
	return out, nil
}

type idIn struct {
	ID int64 `path:"id" minimum:"1"`
}

func (s *Server) getRun(ctx context.Context, in *idIn) (*runOut, error) {
	run, err := s.cfg.Store.Run(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &runOut{runJSON(run)}, nil
}

type clusterOut struct{ Body Cluster }

func (s *Server) getCluster(ctx context.Context, _ *struct{}) (*clusterOut, error) {
	cluster, err := s.cluster(ctx)
	return &clusterOut{cluster}, err
}

// cluster tells the masters also when the store is away: the error is of the
// replicas alone.
func (s *Server) cluster(ctx context.Context) (Cluster, error) {
	masters, voting := mastersJSON(s.cfg.Scheduler.Masters(), time.Now())
	out := Cluster{
		Replica: s.cfg.Scheduler.Replica(), Revision: s.cfg.Scheduler.Revision(), Version: s.cfg.Version,
		Started: s.cfg.Scheduler.Started().UTC(), Voting: voting, Quorum: quorum(len(masters)),
		Masters: masters, Replicas: []Replica{},
	}
	replicas, err := s.cfg.Store.Replicas(ctx)
	if err != nil {
		return out, fmt.Errorf("list replicas: %w", err)
	}
	out.Replicas = replicasJSON(replicas)
	return out, nil
}

// quoted is %q for what a stranger sent, cut to what fits a line.
func quoted(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return strconv.Quote(s)
}
