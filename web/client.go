package web

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"quorate/jobs"
)

// A Client asks a replica over its API. The CLI is one. Its errors are for people.
type Client struct {
	URL   string // http://127.0.0.1:8080
	Token jobs.Secret
}

// A RunFilter picks runs. Zero fields do not filter.
type RunFilter struct {
	Job    string
	Status string
	Since  time.Time // due at or after
	Before int64     // runs with a smaller id: the next page
	After  int64     // runs with a greater id, oldest first
	Limit  int       // at most; 0 means 50 in a list, and none to begin with in Follow
}

func (f RunFilter) query() url.Values {
	q := url.Values{}
	set := func(key, value string) {
		if value != "" && value != "0" {
			q.Set(key, value)
		}
	}
	set("job", f.Job)
	set("status", f.Status)
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	set("before", strconv.FormatInt(f.Before, 10))
	set("after", strconv.FormatInt(f.After, 10))
	set("limit", strconv.Itoa(f.Limit))
	return q
}

// Jobs lists the jobs, sorted by name.
func (c *Client) Jobs(ctx context.Context) ([]Job, error) {
	var out struct{ Jobs []Job }
	err := c.call(ctx, http.MethodGet, "/api/v1/jobs", nil, &out)
	return out.Jobs, err
}

// Job returns one job.
func (c *Client) Job(ctx context.Context, name string) (job Job, err error) {
	return job, c.call(ctx, http.MethodGet, "/api/v1/jobs/"+url.PathEscape(name), nil, &job)
}

// RunNow runs a job now, with these parameters, and returns as soon as the run has
// its row.
func (c *Client) RunNow(ctx context.Context, job string, params map[string]any) (run Run, err error) {
	body, err := json.Marshal(map[string]any{"params": params})
	if err != nil {
		return run, err
	}
	return run, c.call(ctx, http.MethodPost, "/api/v1/jobs/"+url.PathEscape(job)+"/runs", body, &run)
}

// Runs lists runs, newest first.
func (c *Client) Runs(ctx context.Context, f RunFilter) ([]Run, error) {
	var out struct{ Runs []Run }
	err := c.call(ctx, http.MethodGet, "/api/v1/runs?"+f.query().Encode(), nil, &out)
	return out.Runs, err
}

// Run returns one run with its steps.
func (c *Client) Run(ctx context.Context, id int64) (run Run, err error) {
	return run, c.call(ctx, http.MethodGet, fmt.Sprintf("/api/v1/runs/%d", id), nil, &run)
}

// Cluster returns the replicas and the masters.
func (c *Client) Cluster(ctx context.Context) (cluster Cluster, err error) {
	return cluster, c.call(ctx, http.MethodGet, "/api/v1/cluster", nil, &cluster)
}

// Follow hands over each run when it begins and when it ends, until ctx ends or fn
// returns an error. It begins behind f.After, or with the last f.Limit runs that are
// there. A connection that breaks is made again, and goes on where it broke.
func (c *Client) Follow(ctx context.Context, f RunFilter, fn func(Run) error) error {
	place, pause := "", time.Duration(0)
	for {
		before := place
		err := c.read(ctx, f, &place, fn)
		var broken *brokenError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.As(err, &broken):
			return err
		case place == "":
			return broken.err // it has never worked: say so, rather than wait
		case place != before:
			pause = 0
		}
		pause = min(5*time.Second, pause*2+250*time.Millisecond)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// A brokenError is one that asking again may mend.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// read reads one connection's worth of events, and keeps place up to date.
func (c *Client) read(ctx context.Context, f RunFilter, place *string, fn func(Run) error) error {
	q := f.query()
	q.Del("limit")
	q.Del("since")
	q.Del("before")
	if f.Limit > 0 {
		q.Set("last", strconv.Itoa(f.Limit))
	}
	// A server that was cut off says nothing more, not even that it is gone. Its
	// heartbeat is what tells.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(3*heartbeat, cancel)
	defer silence.Stop()

	res, err := c.send(ctx, http.MethodGet, "/api/v1/runs/stream?"+q.Encode(), nil, *place)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 4<<20)
	id, data := "", ""
	for lines.Scan() {
		silence.Reset(3 * heartbeat)
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "data":
			data = value
		case "": // the end of an event, or a comment
			if lines.Text() != "" {
				continue
			}
			if data != "" {
				var run Run
				if err := json.Unmarshal([]byte(data), &run); err != nil {
					return fmt.Errorf("%s sent an event that is not a run: %w", c.URL, err)
				}
				if err := fn(run); err != nil {
					return err
				}
			}
			*place, data = id, ""
		}
	}
	return &brokenError{c.explain(cmp.Or(lines.Err(), io.EOF))}
}

func (c *Client) call(ctx context.Context, method, path string, body []byte, into any) error {
	res, err := c.send(ctx, method, path, body, "")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("%s does not speak our API: is it quorate that listens there? (%w)", c.URL, err)
	}
	return nil
}

// send returns an answer that is a success, or says why there is none.
func (c *Client) send(ctx context.Context, method, path string, body []byte, lastEvent string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil || req.URL.Host == "" {
		return nil, fmt.Errorf("%s is not an address: want one like http://127.0.0.1:8080", quoted(c.URL))
	}
	req.Header.Set("Authorization", "Bearer "+c.Token.Reveal())
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if lastEvent != "" {
		req.Header.Set("Last-Event-ID", lastEvent)
	}
	// A redirect would carry the token to wherever it points.
	noRedirect := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := noRedirect.Do(req)
	if err != nil {
		return nil, &brokenError{c.explain(err)}
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, c.refusal(res)
}

// explain says what a failed connection means.
func (c *Client) explain(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err // without the method and the whole URL in front
	}
	var name *net.DNSError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer in time: %w", c.URL, err)
	case errors.As(err, &name):
		return fmt.Errorf("no host is called %q: check the address %s", name.Name, c.URL)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no quorate answers at %s: is `quorate serve` or `quorate dev` running?", c.URL)
	}
	return fmt.Errorf("%s cannot be reached: %w", c.URL, err)
}

// refusal turns an answer that is not a success into an error.
func (c *Client) refusal(res *http.Response) error {
	var problem huma.ErrorModel
	text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if json.Unmarshal(text, &problem) != nil || problem.Status == 0 {
		if res.StatusCode >= http.StatusBadGateway { // by a proxy in between
			return &brokenError{fmt.Errorf("%s answers %s", c.URL, res.Status)}
		}
		return fmt.Errorf("%s answers %s: is it quorate that listens there?", c.URL, res.Status)
	}
	detail := problem.Detail
	for _, e := range problem.Errors {
		detail += fmt.Sprintf("; %s: %s", e.Location, e.Message)
	}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		if c.Token == "" {
			return fmt.Errorf("%s wants a token, and none was given", c.URL)
		}
		return fmt.Errorf("token refused by %s: it is not the token of this cluster", c.URL)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &brokenError{fmt.Errorf("%s: %s", c.URL, detail)}
	}
	return errors.New(detail)
}
