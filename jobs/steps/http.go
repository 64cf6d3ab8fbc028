package steps

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"quorate/jobs"
)

// http sends the request once. It uses a Transport by itself, and one that is made
// for this request: an http.Client would follow redirects, and a connection that
// was used before would have the request sent again when it turns out to be dead.
func (x *Executor) http(ctx context.Context, hold Hold, step jobs.Step) (result, error) {
	transport := x.transport()
	defer transport.CloseIdleConnections()

	var begun atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { begun.Store(true) },
	})
	req, err := request(ctx, hold.Run, step)
	if err != nil {
		return result{}, undone(err)
	}
	where := req.Method + " to " + req.URL.Host // the path and the query may hold secrets
	resp, err := transport.RoundTrip(req)
	switch {
	case err != nil && begun.Load():
		return result{}, unknown("%s was sent, and no answer came: %w", where, err)
	case err != nil:
		return result{}, undone(fmt.Errorf("%s was not sent: %w", where, err))
	}
	defer resp.Body.Close()

	body, cut := io.ReadAll(io.LimitReader(resp.Body, maxOutput+1))
	res := result{output: conceal(answer(body), step.HTTP.Headers)}
	switch {
	case !slices.Contains(step.HTTP.Expect, resp.StatusCode):
		return res, fmt.Errorf("%s was answered %s, where expect_status is %s", where, resp.Status, list(step.HTTP.Expect))
	case cut != nil:
		return res, unknown("%s was answered %s, and the answer broke off: %w", where, resp.Status, cut)
	}
	return res, nil
}

func (x *Executor) transport() *http.Transport {
	dialer := &net.Dialer{
		Timeout: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
			if x.Allow != nil {
				return x.Allow(to)
			}
			return allow(to)
		},
	}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        x.TLS.Clone(),
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/2 may re-send
		TLSHandshakeTimeout:    30 * time.Second,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxOutput,
	}
}

// allow is asked after the name was resolved, so that no name leads around it.
func allow(to netip.AddrPort) error {
	if a := to.Addr(); a.IsLinkLocalUnicast() || a.IsMulticast() {
		return fmt.Errorf("%s is a link-local or multicast address, which HTTP steps may not connect to", a)
	}
	return nil
}

// request makes the step's request. X-Quorate-Run names the effect, alike in each
// attempt, so that a receiver can drop a repeat; by X-Quorate-Fence it can refuse
// an older run. It is not called Idempotency-Key, which would tell transports and
// proxies that they may send it again.
func request(ctx context.Context, run jobs.Run, step jobs.Step) (*http.Request, error) {
	h := step.HTTP
	req, err := http.NewRequestWithContext(ctx, h.Method, h.URL, strings.NewReader(h.Body))
	if err != nil { // its text would show the url
		return nil, errors.New("the url or the method cannot be used: percent-encode special characters in the url")
	}
	req.GetBody = nil // nothing can send the body twice
	req.Header.Set("User-Agent", "quorate")
	if h.Body != "" {
		req.Header.Set("Content-Type", "text/plain; charset=utf-8")
		if json.Valid([]byte(h.Body)) {
			req.Header.Set("Content-Type", "application/json")
		}
	}
	if user := req.URL.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	for name, value := range h.Headers {
		req.Header.Set(name, value.Reveal())
		if strings.EqualFold(name, "Host") {
			req.Host = value.Reveal()
		}
	}
	due := run.Due.UTC().Format(time.RFC3339Nano)
	req.Header.Set("X-Quorate-Run", run.Job+"@"+due+"/"+headerSafe(step.Name))
	req.Header.Set("X-Quorate-Fence", strconv.FormatInt(int64(run.Fence), 10))
	req.Header.Set("X-Quorate-Due", due)
	req.Header.Set("X-Quorate-Attempt", strconv.Itoa(run.Attempt))
	return req, nil
}

// headerSafe quotes what a header cannot carry.
func headerSafe(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}

func answer(body []byte) string {
	if len(body) > maxOutput {
		return string(body[:maxOutput]) + fmt.Sprintf("\n[... cut after %d bytes ...]\n", maxOutput)
	}
	return string(body)
}

// conceal takes out of an answer the secrets that the request has shown to the
// receiver. Short ones are no secrets, and taking them out would spoil the text.
func conceal(text string, headers map[string]jobs.Secret) string {
	for _, secret := range headers {
		for _, s := range []string{secret.Reveal(), strings.TrimPrefix(secret.Reveal(), "Bearer ")} {
			if len(s) >= 8 {
				text = strings.ReplaceAll(text, s, "***")
			}
		}
	}
	return text
}

func list(codes []int) string {
	words := make([]string, len(codes))
	for i, code := range codes {
		words[i] = strconv.Itoa(code)
	}
	return strings.Join(words, ", ")
}
