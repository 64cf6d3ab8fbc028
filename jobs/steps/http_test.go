package steps_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/jobs/steps"
)

func httpStep(url string) jobs.Step {
	return jobs.Step{HTTP: &jobs.HTTP{Method: "POST", URL: url, Body: `{"n":1}`, Expect: []int{200, 202}}}
}

func execute(t *testing.T, h steps.Hold) jobs.Outcome {
	t.Helper()
	var exec steps.Executor
	return exec.Execute(t.Context(), h)
}

func TestReceiverGetsRunKeyAndFence(t *testing.T) {
	t.Parallel()
	var seen http.Header
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen, body = r.Header.Clone(), string(b)
		seen.Set("Host", r.Host)
		w.WriteHeader(202)
		io.WriteString(w, "thanks, Bearer canary-canary")
	}))
	defer server.Close()
	step := httpStep(strings.Replace(server.URL, "http://", "http://user:pass@", 1))
	step.HTTP.Headers = map[string]jobs.Secret{"X-Token": "Bearer canary-canary", "Host": "shop.example", "x-quorate-fence": "1"}
	got := execute(t, holdOf(1, 7, step))
	want(t, got, jobs.Succeeded, "")
	if out := got.Steps[0].Output; out != "thanks, ***" {
		t.Errorf("output %q", out)
	}
	for name, value := range map[string]string{
		"X-Quorate-Run": "restock@2026-11-21T08:00:00.123456Z/step1", "X-Quorate-Fence": "7", "X-Quorate-Attempt": "1",
		"X-Quorate-Due": "2026-11-21T08:00:00.123456Z", "X-Token": "Bearer canary-canary", "Host": "shop.example",
		"Content-Type": "application/json", "Authorization": "Basic dXNlcjpwYXNz", "Idempotency-Key": "", "Accept-Encoding": "",
	} {
		if seen.Get(name) != value {
			t.Errorf("%s: %q, want %q", name, seen.Get(name), value)
		}
	}
	if body != `{"n":1}` {
		t.Errorf("body %q", body)
	}
}

// sink acts on each request that it gets, and answers with what is written to the
// connection, which it then cuts.
func sink(t *testing.T, answer string) (url string, acted *atomic.Int64) {
	t.Helper()
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { door.Close() })
	acted = new(atomic.Int64)
	go func() {
		for {
			conn, err := door.Accept()
			if err != nil {
				return
			}
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil {
				io.Copy(io.Discard, req.Body)
				acted.Add(1)
			}
			io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	return "http://" + door.Addr().String() + "/act?token=canary", acted
}

func TestRequestThatActsAndIsCutIsSentOnceAndUnknown(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"no answer": "", "half a status": "HTTP/1.1 20", "half the headers": "HTTP/1.1 200 OK\r\nContent-Le",
		"half the body": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
	} {
		url, acted := sink(t, answer)
		for _, method := range []string{"POST", "GET", "PUT"} {
			acted.Store(0)
			step := httpStep(url)
			step.HTTP.Method = method
			step.HTTP.Headers = map[string]jobs.Secret{"Idempotency-Key": "k", "X-Idempotency-Key": "k"}
			got := execute(t, holdOf(1, 7, step))
			want(t, got, jobs.Unknown, jobs.ReasonOutcome, method+" to 127.0.0.1:")
			if n := acted.Load(); n != 1 {
				t.Errorf("%s, %s: acted %d times", name, method, n)
			}
			if strings.Contains(got.Error, "canary") {
				t.Errorf("the error shows the url: %s", got.Error)
			}
		}
	}
	url, _ := sink(t, "HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nhalf")
	want(t, execute(t, holdOf(1, 7, httpStep(url))), jobs.Failed, jobs.ReasonStep, "was answered 500 No, where expect_status is 200, 202")
}

func TestRequestWithoutAnAnswerInTimeIsUnknown(t *testing.T) {
	t.Parallel()
	leave := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	defer server.Close()
	defer close(leave)
	step := httpStep(server.URL)
	step.Timeout = jobs.Duration(100 * time.Millisecond)
	want(t, execute(t, holdOf(1, 7, step)), jobs.Unknown, jobs.ReasonOutcome, "no answer came", "the step's timeout of 100ms")
}

func TestRequestThatWasNotSentHasFailed(t *testing.T) {
	t.Parallel()
	plain, _ := sink(t, "")
	quiet, err := net.Listen("tcp", "127.0.0.1:0") // a TLS handshake that never ends
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	for _, url := range []string{
		"http://127.0.0.1:1/", "http://no.such.host.invalid/", strings.Replace(plain, "http:", "https:", 1), "http://h/%zz?canary",
		"http://169.254.169.254/latest/meta-data", "http://[::ffff:169.254.169.254]/", "http://[fe80::1]/",
	} {
		got := execute(t, holdOf(1, 7, httpStep(url)))
		want(t, got, jobs.Failed, jobs.ReasonStep)
		if strings.Contains(got.Error, "canary") {
			t.Errorf("the error shows the url: %s", got.Error)
		}
		if strings.Contains(url, "169.254") && !strings.Contains(got.Error, "link-local") {
			t.Errorf("%s: %s", url, got.Error)
		}
	}
	step := httpStep("https://" + quiet.Addr().String())
	step.Timeout = jobs.Duration(100 * time.Millisecond)
	want(t, execute(t, holdOf(1, 7, step)), jobs.Failed, jobs.ReasonTimeout, "was not sent")

	exec := steps.Executor{Allow: func(to netip.AddrPort) error { return fmt.Errorf("%s is not for us", to) }}
	want(t, exec.Execute(t.Context(), holdOf(1, 7, httpStep(plain))), jobs.Failed, jobs.ReasonStep, "is not for us")
}

func TestNoRedirectIsFollowedAndNoProxyAsked(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	t.Setenv("HTTP_PROXY", other.URL)
	t.Setenv("http_proxy", other.URL)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	step := httpStep(server.URL)
	want(t, execute(t, holdOf(1, 7, step)), jobs.Failed, jobs.ReasonStep, "was answered 307")
	step.HTTP.Expect = []int{307}
	want(t, execute(t, holdOf(1, 7, step)), jobs.Succeeded, "")
	want(t, execute(t, holdOf(1, 7, httpStep("http://no.such.host.invalid/"))), jobs.Failed, jobs.ReasonStep)
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

func TestEachRequestHasItsOwnConnection(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	from := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		from[r.RemoteAddr] = true
	}))
	defer server.Close()
	want(t, execute(t, holdOf(1, 7, httpStep(server.URL), httpStep(server.URL), httpStep(server.URL))), jobs.Succeeded, "")
	if len(from) != 3 {
		t.Errorf("%d connections for 3 requests", len(from))
	}
}

func TestEndlessAnswerIsCapped(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			w.Write([]byte("\xff\x00 and so on"))
		}
	}))
	defer server.Close()
	got := execute(t, holdOf(1, 7, httpStep(server.URL)))
	want(t, got, jobs.Succeeded, "")
	if out := got.Steps[0].Output; len(out) > 128<<10 || !strings.Contains(out, "cut after 65536 bytes") || strings.ContainsRune(out, 0) {
		t.Errorf("%d bytes of output", len(out))
	}
}
