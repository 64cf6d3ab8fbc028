package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var errEnough = errors.New("enough")

func newClient(t *testing.T, h http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return &Client{URL: server.URL, Token: goodToken}
}

func TestARunGetsItsParametersOrIsRefused(t *testing.T) {
	h := newHouse(t)
	c, ctx := newClient(t, h), t.Context()
	run, err := c.RunNow(ctx, "told", map[string]any{"sku": "apple"})
	for err == nil && run.Status == "running" {
		run, err = c.Run(ctx, run.ID)
	}
	if err != nil || run.Status != "failed" || !strings.Contains(run.Error, "told map[sku:apple units:7]") {
		t.Errorf("%+v, %v", run, err)
	}
	for _, params := range []map[string]any{nil, {"sku": 5}, {"sku": "apple", "skew": 1}, {"sku": "apple", "units": 7.5}} {
		if run, err := c.RunNow(ctx, "told", params); err == nil || !strings.Contains(err.Error(), "parameters do not fit") {
			t.Errorf("%v: %+v, %v", params, run, err)
		}
	}
	if _, err := c.RunNow(ctx, "quick", map[string]any{"sql": "DROP TABLE x"}); err == nil || !strings.Contains(err.Error(), "the job has none") {
		t.Error(err)
	}
	for body, want := range map[string]int{``: 422, `{"params": {"sku": "a"}}`: 201, `{"parms": {}}`: 422, `{"params": []}`: 422, `[`: 400} {
		req := httptest.NewRequest(http.MethodPost, "/api/v1/jobs/told/runs", strings.NewReader(body))
		req.Host = "127.0.0.1:1"
		req.Header.Set("Authorization", "Bearer "+goodToken)
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != want {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
}

func TestTheClientSeesWhatTheServerHas(t *testing.T) {
	h := newHouse(t)
	c, ctx := newClient(t, h), t.Context()

	all, err := c.Jobs(ctx)
	if err != nil || len(all) != 3 || all[0].Name != "quick" || len(all[0].Next) != 3 || all[1].Schedule != "" {
		t.Fatalf("jobs: %+v, %v", all, err)
	}
	run, err := c.RunNow(ctx, "quick", nil)
	if err != nil || run.Job != "quick" || run.Trigger != "manual" || run.Fence == 0 || run.Evidence == nil {
		t.Fatalf("run now: %+v, %v", run, err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for run.Status == "running" && time.Now().Before(deadline) {
		if run, err = c.Run(ctx, run.ID); err != nil {
			t.Fatal(err)
		}
	}
	if run.Status != "succeeded" || len(run.Steps) != 1 || run.Finished == nil {
		t.Errorf("run: %+v", run)
	}
	runs, err := c.Runs(ctx, RunFilter{Job: "quick", Status: "succeeded", Since: run.Due, Limit: 1})
	if err != nil || len(runs) != 1 || runs[0].ID != run.ID || runs[0].Steps != nil {
		t.Errorf("runs: %+v, %v", runs, err)
	}
	if runs, err := c.Runs(ctx, RunFilter{Before: run.ID}); err != nil || len(runs) != 0 {
		t.Errorf("runs before the first: %+v, %v", runs, err)
	}
	job, err := c.Job(ctx, "quick")
	if err != nil || job.Latest == nil || job.Latest.ID != run.ID || len(job.Next) != 10 {
		t.Errorf("job: %+v, %v", job, err)
	}
	cluster, err := c.Cluster(ctx)
	if err != nil || cluster.Voting != 5 || cluster.Quorum != 3 || cluster.Replica != "a" || len(cluster.Masters) != 5 {
		t.Errorf("cluster: %+v, %v", cluster, err)
	}
	if m := cluster.Masters[0]; m.State != "up" || m.Role != "master" || len(m.RunID) != 40 {
		t.Errorf("master: %+v", m)
	}
}

// A cutter serves one connection's first bytes and then breaks it, n times.
type cutter struct {
	http.Handler
	left atomic.Int64
}

type cutWriter struct {
	http.ResponseWriter
	after int
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) Write(b []byte) (int, error) {
	if w.after--; w.after < 0 {
		panic(http.ErrAbortHandler)
	}
	return w.ResponseWriter.Write(b)
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/stream") && c.left.Add(-1) >= 0 {
		w = &cutWriter{w, 2} // the heartbeat and one event
	}
	c.Handler.ServeHTTP(w, r)
}

func TestFollowGoesOnWhereAConnectionBroke(t *testing.T) {
	h := newHouse(t)
	cut := &cutter{Handler: h}
	cut.left.Store(2)
	c := newClient(t, cut)
	slow, err := c.RunNow(t.Context(), "slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = c.Follow(ctx, RunFilter{Limit: 5}, func(r Run) error {
		told = append(told, r.Job+" "+r.Status)
		switch told[len(told)-1] {
		case "slow running":
			_, err := c.RunNow(ctx, "quick", nil)
			return err
		case "quick succeeded":
			close(h.release)
		case "slow failed":
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("Follow returns %v after %q", err, told)
	}
	// A run that ended before it was looked for is told once.
	told = slices.DeleteFunc(told, func(e string) bool { return e == "quick running" })
	if want := []string{"slow running", "quick succeeded", "slow failed"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if slow.Status != "running" || cut.left.Load() >= 0 {
		t.Errorf("the connection was not broken often enough: %d left", cut.left.Load())
	}
}

func TestFollowFiltersByJobAndStatus(t *testing.T) {
	h := newHouse(t)
	c := newClient(t, h)
	for range 2 {
		if _, err := c.RunNow(t.Context(), "quick", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.RunNow(t.Context(), "slow", nil); err != nil {
		t.Fatal(err)
	}
	close(h.release)
	err := c.Follow(t.Context(), RunFilter{Status: "failed", After: 1}, func(r Run) error {
		if r.Status != "failed" || r.Job != "slow" {
			t.Errorf("told of %s %s", r.Job, r.Status)
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
}

func TestClientErrorsAreForPeople(t *testing.T) {
	h := newHouse(t)
	good := newClient(t, h)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + free.Addr().String()
	free.Close()
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("<html>")) }))
	defer page.Close()
	elsewhere := httptest.NewServer(http.RedirectHandler(good.URL, http.StatusFound))
	defer elsewhere.Close()

	for _, test := range []struct {
		what   string
		client Client
		want   string
	}{
		{"nobody listens", Client{closed, goodToken}, "no quorate answers at " + closed + ": is `quorate serve` or `quorate dev` running?"},
		{"wrong token", Client{good.URL, "wrong"}, "token refused by " + good.URL},
		{"no token", Client{good.URL, ""}, "wants a token, and none was given"},
		{"another server", Client{stranger.URL, goodToken}, "is it quorate that listens there?"},
		{"a page", Client{page.URL, goodToken}, "is it quorate that listens there?"},
		{"a redirect", Client{elsewhere.URL, goodToken}, "302 Found: is it quorate"},
		{"no such host", Client{"http://nobody.invalid:8080", goodToken}, `no host is called "nobody.invalid"`},
		{"no URL", Client{"127.0.0.1:8080", goodToken}, "want one like http://127.0.0.1:8080"},
		{"no scheme", Client{"quorate", goodToken}, "want one like http://127.0.0.1:8080"},
	} {
		_, err := test.client.Jobs(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v\nwant %s", test.what, err, test.want)
			continue
		}
		if strings.Contains(err.Error(), goodToken) {
			t.Errorf("%s: the error shows the token: %v", test.what, err)
		}
		if follow := test.client.Follow(t.Context(), RunFilter{}, func(Run) error { return nil }); follow == nil {
			t.Errorf("%s: Follow goes on", test.what)
		}
	}
	if _, err := good.RunNow(t.Context(), "nothing", nil); err == nil || !strings.Contains(err.Error(), `no such job: "nothing"`) {
		t.Errorf("a job that is not there: %v", err)
	}
	if _, err := good.Run(t.Context(), 12345); err == nil || !strings.Contains(err.Error(), "no such run") {
		t.Errorf("a run that is not there: %v", err)
	}
	if _, err := good.Runs(t.Context(), RunFilter{Limit: 5000}); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a limit that is too high: %v", err)
	}
}
