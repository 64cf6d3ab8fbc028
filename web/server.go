// Package web is the door of a replica: the API under /api/v1, the pages, the
// metrics, the probes, and the client that the CLI uses.
//
// What it promises. Nothing is told to anyone without a credential, loopback
// included, except /healthz and /readyz; a route that states no policy needs one.
// State changes by POST alone, and never on behalf of another site. Whatever came
// from a job (its name, output, error) reaches a browser as text. Errors that are
// ours to mend go to the log under an id, and only the id to the caller.
//
// What may live here: HTTP, its shapes, and who may come in. What may not: a
// decision about when or whether a job runs; this room asks the scheduler and
// reads the store.
package web

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"quorate/jobs"
	"quorate/scheduler"
	"quorate/store"
)

// Config is what a Server needs.
type Config struct {
	Scheduler *scheduler.Scheduler
	Store     store.Store
	Token     jobs.Secret // who has it may do everything
	Hosts     []string    // Host headers to answer to, with their port; loopback always
	Version   string
	Log       *slog.Logger
}

// A Server answers HTTP for one replica.
type Server struct {
	cfg     Config
	log     *slog.Logger
	auth    *auth
	pages   *pages
	metrics *metrics
	origin  *http.CrossOriginProtection
	mux     *http.ServeMux
	policy  map[string]policy // by pattern
	poll    time.Duration     // how often a stream asks the store
	streams atomic.Int64      // how many are open
	closing chan struct{}     // closed when streams must end
	close   sync.Once
}

// A policy says what a request must bring to reach a route. The zero policy is the
// strict one, so that a route for which none was stated is closed.
type policy int

const (
	guarded policy = iota // a token or a session
	door                  // the sign-in page: it checks what it is handed by itself
	open                  // nothing: the two probes
)

// A route is a pattern of the mux, who may come in, and what answers.
type route struct {
	pattern string
	policy  policy
	handler http.HandlerFunc
}

const maxBody = 64 << 10

// New returns a Server. It refuses a token that could be guessed.
func New(cfg Config) (*Server, error) {
	auth, err := newAuth(cfg.Token)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, auth: auth, pages: newPages(), origin: http.NewCrossOriginProtection(),
		mux: http.NewServeMux(), policy: map[string]policy{},
		poll: 500 * time.Millisecond, closing: make(chan struct{}),
	}
	s.metrics = newMetrics(cfg)
	for _, r := range s.routes() {
		s.mux.HandleFunc(r.pattern, r.handler)
		s.policy[r.pattern] = r.policy
	}
	return s, nil
}

// routes is every route there is.
func (s *Server) routes() []route {
	var list []route
	add := func(pattern string, p policy, h http.HandlerFunc) { list = append(list, route{pattern, p, h}) }

	add("GET /healthz", open, s.healthz)
	add("GET /readyz", open, s.readyz)
	add("GET /metrics", guarded, s.metrics.serve)

	add("GET /signin", door, s.signIn)
	add("POST /signin", door, s.signIn)
	add("POST /signout", guarded, s.signOut)

	add("GET /{$}", guarded, s.overview)
	add("GET /runs/{id}", guarded, s.runPage)
	add("POST /jobs/{name}/runs", guarded, s.runNowPage)
	add("GET /static/{file}", guarded, s.static)

	api := newAPI(s.cfg.Version, func(pattern string, h http.HandlerFunc) { add(pattern, guarded, h) })
	describe(s, api, "GET /api/v1/jobs", "Jobs, their next ticks and latest run", s.listJobs)
	describe(s, api, "GET /api/v1/jobs/{name}", "One job", s.getJob)
	describe(s, api, "POST /api/v1/jobs/{name}/runs", "Run a job now; answers as soon as the run has its row", s.runNow)
	describe(s, api, "GET /api/v1/runs", "Runs, newest first", s.listRuns)
	describe(s, api, "GET /api/v1/runs/stream", "Runs as they begin and end, as server-sent events", s.streamRuns)
	describe(s, api, "GET /api/v1/runs/{id}", "One run, with its steps", s.getRun)
	describe(s, api, "GET /api/v1/cluster", "Replicas and masters", s.getCluster)
	add("GET /api/v1/openapi.json", guarded, openAPI(api))
	return list
}

// ServeHTTP checks, in this order: is the host ours, does another site drive this
// browser, may the caller come in, is there such a route.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recovered(w, r)
	secure(w.Header())
	if !s.knownHost(r) {
		s.refuse(w, r, http.StatusMisdirectedRequest, "this server does not answer to the host "+quoted(r.Host)+
			": add it to allowed_hosts in [web], or use the address it listens on")
		return
	}
	if s.origin.Check(r) != nil {
		s.refuse(w, r, http.StatusForbidden, "the request was sent by a page of another site")
		return
	}
	unrouted, pattern := s.mux.Handler(r)
	if s.policy[pattern] == guarded {
		if _, err := s.auth.check(r); err != nil {
			s.turnAway(w, r, err)
			return
		}
	}
	if pattern == "" {
		answer := notedStatus{header: http.Header{}}
		unrouted.ServeHTTP(&answer, r)
		if allow := answer.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
		}
		s.refuse(w, r, answer.status, "there is no "+r.Method+" "+quoted(r.URL.Path)+" here")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	s.mux.ServeHTTP(w, r)
}

// notedStatus keeps what the mux would have said of a path that has no route.
type notedStatus struct {
	header http.Header
	status int
}

func (n *notedStatus) Header() http.Header         { return n.header }
func (n *notedStatus) Write(b []byte) (int, error) { return len(b), nil }
func (n *notedStatus) WriteHeader(status int)      { n.status = status }

func secure(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy("'self'"))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

func contentPolicy(style string) string {
	return "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self'; style-src " + style +
		"; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}

// turnAway answers a caller without a good credential: 401 and the way in, or 429.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errTooMany) {
		w.Header().Set("Retry-After", "5")
		s.refuse(w, r, http.StatusTooManyRequests, err.Error())
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="quorate"`)
	s.refuse(w, r, http.StatusUnauthorized, err.Error())
}

// refuse answers with an error in the form that the caller reads: a page for a
// browser, problem+json for everyone else.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		writeProblem(w, status, detail)
		return
	}
	if status == http.StatusUnauthorized {
		s.pages.signIn(w, r, status, "")
		return
	}
	s.pages.problem(w, status, detail)
}

// fail is refuse for an error that came up from a room below.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, detail := s.explain(err)
	s.refuse(w, r, status, detail)
}

// explain is the one table from errors to HTTP. What is not in it is our fault: the
// caller gets an id, and the log has the error under it.
func (s *Server) explain(err error) (status int, detail string) {
	switch {
	case errors.Is(err, scheduler.ErrNoJob), errors.Is(err, store.ErrNotFound):
		return http.StatusNotFound, err.Error()
	case errors.Is(err, jobs.ErrParams):
		return http.StatusUnprocessableEntity, err.Error()
	case errors.Is(err, scheduler.ErrDraining):
		return http.StatusServiceUnavailable, err.Error() + ": ask another one"
	case errors.Is(err, store.ErrAway):
		s.log.Warn("the store cannot be reached", "err", err)
		return http.StatusServiceUnavailable, store.ErrAway.Error() + ": try again when it is back"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, "gave up before there was an answer: try again"
	}
	id := rand.Text()[:8]
	s.log.Error("request failed", "id", id, "err", err)
	return http.StatusInternalServerError, "something went wrong here: the log has it under " + id
}

func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		id := rand.Text()[:8]
		s.log.Error("request panicked", "id", id, "path", r.URL.Path, "panic", v)
		s.refuse(w, r, http.StatusInternalServerError, "something went wrong here: the log has it under "+id)
	}
}

// Serve answers on a listener until ctx ends; then it ends the streams, lets the
// requests under way finish, for five seconds at most, and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	s.close.Do(func() { close(s.closing) })
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	return nil
}
