package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
	"quorate/redlock"
	"quorate/redlock/embedded"
	"quorate/scheduler"
	"quorate/store"
	"quorate/store/sqlite"
)

const goodToken = "a-token-that-is-long-enough"

// A house is a replica with real masters and a real store, and its Server.
type house struct {
	*Server
	masters *embedded.Masters
	sqlite  *sqlite.Store
	release chan struct{} // the job "slow" runs until this is closed
}

func newHouse(t *testing.T, change ...func(*Config)) *house {
	t.Helper()
	h := &house{release: make(chan struct{})}
	var err error
	if h.masters, err = embedded.Start(5); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.masters.Close)
	locker, err := redlock.New(redlock.Options{RestartGuard: -1, MasterTimeout: time.Second}, h.masters.URLs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	if _, err := locker.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.sqlite = newStore(t)
	all := h.jobs(t)
	sched, err := scheduler.New(scheduler.Config{
		Replica: "a", Jobs: all, Locker: locker, Store: h.sqlite, Steps: &steps.Executor{Targets: &steps.Targets{}},
		Ended: func(r jobs.Run) { h.Ended(r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Scheduler: sched, Store: h.sqlite, Token: goodToken, Version: "test", Hosts: []string{"Quorate.example:8443"}}
	for _, f := range change {
		f(&cfg)
	}
	if h.Server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	h.poll = 5 * time.Millisecond
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- sched.Run(ctx, 0) }()
	<-sched.Ready()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *house) jobs(t *testing.T) []*jobs.Job {
	t.Helper()
	all := []*jobs.Job{
		{Name: "quick", Description: "Does nothing", Every: jobs.Durations{time.Hour}, Steps: []jobs.Step{{Func: func(context.Context, jobs.Run) error { return nil }}}},
		{Name: "slow", Steps: []jobs.Step{{Func: func(ctx context.Context, _ jobs.Run) error {
			select {
			case <-h.release:
				return errors.New("released")
			case <-ctx.Done():
				return ctx.Err()
			}
		}}}},
		{Name: "told", Params: map[string]jobs.Param{"sku": {Required: true}, "units": {Type: jobs.ParamInt, Default: 7}}, Steps: []jobs.Step{
			{Func: func(_ context.Context, run jobs.Run) error { return fmt.Errorf("told %v", run.Params) }}}},
	}
	for _, j := range all {
		if bad := j.Prepare(); bad != nil {
			t.Fatal(bad)
		}
	}
	return all
}

func newStore(t *testing.T) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "quorate.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends one request to a handler; each option is "Header: value", or "" for none.
func ask(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	return askWith(h, httptest.NewRequest(method, path, nil), headers...)
}

func askWith(h http.Handler, r *http.Request, headers ...string) *httptest.ResponseRecorder {
	r.Host = "127.0.0.1:8080"
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second) // of a stream, too
	defer cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(ctx))
	return w
}

const bearer = "Authorization: Bearer " + goodToken

// filled is a path of the pattern with something in its places.
func filled(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, strings.NewReplacer("{$}", "", "{name}", "quick", "{id}", "1", "{file}", "app.css").Replace(path)
}

func TestNothingIsToldWithoutACredentialExceptByTheProbes(t *testing.T) {
	h := newHouse(t)
	var opened, doors []string
	for _, r := range h.routes() {
		switch method, path := filled(r.pattern); r.policy {
		case open:
			opened = append(opened, r.pattern)
		case door:
			doors = append(doors, r.pattern)
			fallthrough
		default:
			for _, headers := range [][]string{
				{"Accept: application/json"}, {"Accept: text/html"}, {"Accept: text/event-stream"},
				{"Authorization: Bearer wrong"}, {"Authorization: Bearer "}, {"Authorization: Basic " + goodToken},
				{"Cookie: quorate-8080=wrong"}, {"Cookie: quorate-8080=" + goodToken},
				{"X-Forwarded-For: 127.0.0.1"},
			} {
				h.auth.wrong = 0 // of the limit, another test
				w := ask(h, method, path, headers...)
				if w.Code != http.StatusUnauthorized {
					t.Errorf("%s with %q answers %d, want 401", r.pattern, headers, w.Code)
				}
				if body := w.Body.String(); strings.Contains(body, "quick") && r.policy != door && !strings.Contains(path, "quick") {
					t.Errorf("%s with %q tells of our jobs: %s", r.pattern, headers, body)
				}
			}
		}
	}
	if want := []string{"GET /healthz", "GET /readyz"}; !slices.Equal(opened, want) {
		t.Errorf("open to everyone: %v, want %v", opened, want)
	}
	if want := []string{"GET /signin", "POST /signin"}; !slices.Equal(doors, want) {
		t.Errorf("these check by themselves: %v, want %v", doors, want)
	}
}

func TestWhoHasTheTokenMayDoEverything(t *testing.T) {
	h := newHouse(t)
	for _, r := range h.routes() {
		method, path := filled(r.pattern)
		if strings.HasSuffix(path, "/stream") || r.policy != guarded {
			continue
		}
		if w := ask(h, method, path, bearer); w.Code >= 400 && w.Code != http.StatusNotFound {
			t.Errorf("%s answers %d: %s", r.pattern, w.Code, w.Body)
		}
	}
}

func TestAPathThatIsNotThereIsFoundOutOnlyWithACredential(t *testing.T) {
	h := newHouse(t)
	for _, path := range []string{"/nothing", "/api/v1/nothing", "/docs", "/openapi.json", "/schemas/Run.json", "/debug/pprof/"} {
		if w := ask(h, "GET", path); w.Code != http.StatusUnauthorized {
			t.Errorf("GET %s without a credential answers %d, want 401", path, w.Code)
		}
		if w := ask(h, "GET", path, bearer); w.Code != http.StatusNotFound {
			t.Errorf("GET %s answers %d, want 404", path, w.Code)
		}
	}
	w := ask(h, "GET", "/api/v1/jobs/quick/runs", bearer)
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
		t.Errorf("a GET of what is only posted answers %d, Allow %q; want 405 and POST", w.Code, w.Header().Get("Allow"))
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("and is a %s, want problem+json", got)
	}
}

func TestOnlyOurHostsAreAnswered(t *testing.T) {
	h := newHouse(t)
	for _, host := range []string{
		"evil.example", "evil:8080", "localhost.evil:8080", "127.0.0.1.evil.example:8080", "quorate.example",
		"quorate.example:9999", "169.254.169.254", "192.0.2.7:8080", "", "[::2]:8080",
	} {
		for _, r := range h.routes() {
			method, path := filled(r.pattern)
			if w := ask(h, method, path, bearer, "Host: "+host); w.Code != http.StatusMisdirectedRequest {
				t.Errorf("%s at host %q answers %d, want 421", r.pattern, host, w.Code)
			}
		}
	}
	for _, host := range []string{"localhost:8080", "LOCALHOST", "127.0.0.1:9", "[::1]:8080", "quorate.EXAMPLE:8443"} {
		if w := ask(h, "GET", "/api/v1/jobs", bearer, "Host: "+host); w.Code != http.StatusOK {
			t.Errorf("host %q answers %d, want 200", host, w.Code)
		}
	}
	// A probe calls the address that it connects to.
	r := httptest.NewRequest("GET", "/healthz", nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 8080})))
	if w := askWith(h, r, "Host: 192.0.2.7:8080"); w.Code != http.StatusOK {
		t.Errorf("a probe by address is answered %d, want 200", w.Code)
	}
}

func TestAnotherSiteCannotActForABrowserThatIsSignedIn(t *testing.T) {
	h := newHouse(t)
	session := "Cookie: quorate-8080=" + h.auth.begin()
	for _, r := range h.routes() {
		method, path := filled(r.pattern)
		if method != http.MethodPost {
			continue
		}
		for _, foreign := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: http://evil.example", "Origin: http://127.0.0.1:3000", "Origin: null"} {
			if w := ask(h, method, path, session, foreign); w.Code != http.StatusForbidden {
				t.Errorf("%s with %q answers %d, want 403", r.pattern, foreign, w.Code)
			}
		}
	}
	if runs, _ := h.sqlite.Runs(t.Context(), store.Filter{}); len(runs) > 0 {
		t.Errorf("%d runs were made", len(runs))
	}
	w := ask(h, "POST", "/jobs/quick/runs", session, "Origin: http://127.0.0.1:8080", "Sec-Fetch-Site: same-origin")
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), "/runs/") {
		t.Errorf("our own page answers %d to %q, want 303 to the run", w.Code, w.Header().Get("Location"))
	}
}

func TestEveryAnswerCarriesTheSecurityHeaders(t *testing.T) {
	h := newHouse(t)
	check := func(what string, header http.Header) {
		t.Helper()
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: policy %q lacks %s", what, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s: policy %q is too wide", what, policy)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") == "" {
			t.Errorf("%s: headers %v", what, header)
		}
		if cache := header.Get("Cache-Control"); cache != "no-store" && !strings.HasPrefix(what, "GET /static") {
			t.Errorf("%s: Cache-Control %q", what, cache)
		}
	}
	for _, r := range h.routes() {
		method, path := filled(r.pattern)
		check(r.pattern, ask(h, method, path).Header())
		if !strings.HasSuffix(path, "/stream") {
			check(r.pattern, ask(h, method, path, bearer).Header())
		}
	}
	check("wrong host", ask(h, "GET", "/", "Host: evil").Header())
}

// A brokenStore fails in a way that must not be shown to strangers.
type brokenStore struct{ store.Store }

func (brokenStore) Runs(context.Context, store.Filter) ([]jobs.Run, error) {
	return nil, errors.New("pq: canary at 10.0.0.1:5432")
}
func (brokenStore) Latest(context.Context) (map[string]jobs.Run, error) { panic("canary") }

func TestFaultsOfOursAreToldAsAnIdOnly(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Store = brokenStore{c.Store} })
	for _, path := range []string{"/api/v1/runs", "/api/v1/jobs", "/"} {
		w := ask(h, "GET", path, bearer)
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "the log has it under") {
			t.Errorf("GET %s answers %d %s", path, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), "canary") || strings.Contains(w.Body.String(), ".go:") {
			t.Errorf("GET %s gives our insides away: %s", path, w.Body)
		}
	}
}

func TestServeEndsStreamsAndStops(t *testing.T) {
	h := newHouse(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, l) }()
	r, _ := http.NewRequest("GET", "http://"+l.Addr().String()+"/api/v1/runs/stream", nil)
	r.Header.Set("Authorization", "Bearer "+goodToken)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	began := time.Now()
	stop()
	if err := <-done; err != nil {
		t.Errorf("Serve returns %v", err)
	}
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Errorf("the stream was cut, not ended: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s: the open stream held it", took)
	}
}
