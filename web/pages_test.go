package web

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

// An awayStore cannot be reached.
type awayStore struct{ store.Store }

func away(what string) error { return fmt.Errorf("%s at canary:5432: %w", what, store.ErrAway) }

func (awayStore) Now(context.Context) (time.Time, error)                 { return time.Time{}, away("now") }
func (awayStore) Runs(context.Context, store.Filter) ([]jobs.Run, error) { return nil, away("runs") }
func (awayStore) Latest(context.Context) (map[string]jobs.Run, error)    { return nil, away("latest") }
func (awayStore) Replicas(context.Context) ([]store.Replica, error)      { return nil, away("replicas") }

// hostile is what a job could print, or be named, to reach into a browser.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(1)>`, `</title><script>alert(1)</script>`,
	`javascript:alert(1)`, `" autofocus onfocus="alert(1)`, `' onmouseover='alert(1)`, `</pre><iframe src="//evil.example">`,
	`<!--`, `]]>`, `</script><script>alert(1)//`, "\u2028alert(1)", "\x00<b>", `{{.Config}}`, `${alert(1)}`, `&lt;script&gt;`,
	`<a href="javascript:alert(1)">x</a>`, `<style>*{display:none}</style>`, `<meta http-equiv=refresh content=0;url=//evil.example>`,
	`<base href="//evil.example">`, "\x1b[31mred", "a\r\nSet-Cookie: x=y", strings.Repeat("<", 3000),
}

var (
	tag   = regexp.MustCompile(`<[a-zA-Z/!](?:[^>"']|"[^"]*"|'[^']*')*>`)
	value = regexp.MustCompile(`"[^"]*"|'[^']*'`)

	script = regexp.MustCompile(`(?i)(href|src|action)="\s*javascript:`)
)

// skeleton is a page's tags with the names of their attributes, in order.
func skeleton(page string) []string {
	tags := tag.FindAllString(page, -1)
	for i := range tags {
		tags[i] = value.ReplaceAllString(tags[i], "")
	}
	return tags
}

// Hostile text must leave a page built as harmless text does: the same tags, with
// the same attributes, and the text itself to be read.
func TestWhateverAJobSaysIsShownAsText(t *testing.T) {
	h := newHouse(t)
	says := &sayingStore{Store: h.cfg.Store}
	h.cfg.Store = says
	for _, path := range []string{"/runs/1", "/"} {
		page := func(text string) string {
			says.text = text
			w := ask(h, "GET", path, bearer)
			if w.Code != http.StatusOK {
				t.Fatalf("%s answers %d: %s", path, w.Code, w.Body)
			}
			return w.Body.String()
		}
		want := skeleton(page("harmless"))
		if len(want) < 50 {
			t.Fatalf("%s has but %d tags", path, len(want))
		}
		for _, text := range hostile {
			got := page(text)
			if built := skeleton(got); !slices.Equal(built, want) {
				t.Errorf("%s is built otherwise when a job says %q", path, text)
			}
			shown := strings.ReplaceAll(text, "\x00", "\uFFFD")
			if n := strings.Count(html.UnescapeString(got), shown); n < 4 {
				t.Errorf("%s shows %q %d times as text, want it wherever the job said it", path, text, n)
			}
			if script.MatchString(got) {
				t.Errorf("%s links to a script", path)
			}
		}
	}
}

// A sayingStore has one run and one replica, with the text everywhere.
type sayingStore struct {
	store.Store
	text string
}

func (s *sayingStore) Run(context.Context, int64) (jobs.Run, error) {
	text, now := s.text, time.Now()
	return jobs.Run{
		ID: 1, Job: text, Due: now, Attempt: 1, Trigger: jobs.Trigger(text), Status: jobs.Failed, Reason: jobs.Reason(text),
		Error: text, Lock: text, Replica: text, Revision: text, Started: now, Finished: now,
		Evidence: jobs.Evidence{Votes: 3, Masters: 5, Granted: time.Second, Left: time.Second},
		Steps:    []jobs.StepRun{{Name: text, Kind: text, Status: jobs.Failed, Output: text, Error: text}},
	}, nil
}

func (s *sayingStore) Runs(ctx context.Context, _ store.Filter) ([]jobs.Run, error) {
	run, _ := s.Run(ctx, 1)
	return []jobs.Run{run}, nil
}

func (s *sayingStore) Replicas(context.Context) ([]store.Replica, error) {
	return []store.Replica{{Name: s.text, Revision: s.text, Live: true}}, nil
}

func TestTheOverviewShowsJobsRunsAndWhoVotes(t *testing.T) {
	h := newHouse(t)
	ask(h, "POST", "/api/v1/jobs/slow/runs", bearer)
	hist := &history{t: t, store: &lateStore{Store: h.sqlite, hidden: map[int64]bool{}}}
	for range runsOnPage {
		hist.miss()
	}
	page := ask(h, "GET", "/", bearer).Body.String()
	for _, want := range []string{"quick", "Does nothing", "every 1h", "by hand only", "5 of 5 vote", "missed", "no quorum", "Older runs", `data-stream="/api/v1/runs/stream?"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the overview lacks %q", want)
		}
	}
	if n := strings.Count(page, `<tr id="run-`); n != runsOnPage {
		t.Errorf("it has %d runs, want %d", n, runsOnPage)
	}
	filtered := ask(h, "GET", "/?job=slow&status=running", bearer).Body.String()
	if n := strings.Count(filtered, `<tr id="run-`); n != 1 || !strings.Contains(filtered, "/api/v1/runs/stream?job=slow&amp;status=running") {
		t.Errorf("of one job it has %d runs, want 1", n)
	}
}

func TestTheOverviewStandsWhenTheStoreIsAway(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Store = awayStore{c.Store} })
	w := ask(h, "GET", "/", bearer)
	page := w.Body.String()
	if w.Code != http.StatusOK || !strings.Contains(page, "store cannot be reached") || !strings.Contains(page, "5 of 5 vote") {
		t.Errorf("it answers %d: %s", w.Code, page)
	}
	if strings.Contains(page, "canary") {
		t.Error("it tells where the store is")
	}
	if w := ask(h, "GET", "/api/v1/runs", bearer); w.Code != http.StatusServiceUnavailable {
		t.Errorf("the API answers %d, want 503", w.Code)
	}
}

func TestASignInLeadsBackToWhereItWasWanted(t *testing.T) {
	h := newHouse(t)
	form := ask(h, "GET", "/?job=quick", "Accept: text/html")
	if form.Code != http.StatusUnauthorized || !strings.Contains(form.Body.String(), `name="next" value="/?job=quick"`) {
		t.Fatalf("it asks %d %s", form.Code, form.Body)
	}
	r := httptest.NewRequest("POST", "/signin", strings.NewReader("next=%2F%3Fjob%3Dquick&token="+goodToken))
	w := askWith(h, r, "Content-Type: application/x-www-form-urlencoded", "Origin: http://127.0.0.1:8080")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/?job=quick" {
		t.Fatalf("signing in answers %d to %q", w.Code, w.Header().Get("Location"))
	}
	cookie, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), ";")
	if w := ask(h, "GET", "/?job=quick", "Cookie: "+cookie); w.Code != http.StatusOK {
		t.Errorf("and then the page answers %d", w.Code)
	}
}

// The form is styled though its reader may load nothing yet: the policy names the
// one style sheet that stands in the page.
func TestTheSignInFormIsAllowedItsStyle(t *testing.T) {
	h := newHouse(t)
	w := ask(h, "GET", "/", "Accept: text/html")
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(w.Body.String())
	if len(style) != 2 || style[1] != string(pageFile("app.css")) {
		t.Error("the style in the page is not, byte for byte, the one whose hash the policy names")
	}
	if !strings.Contains(w.Header().Get("Content-Security-Policy"), "style-src 'sha256-"+h.pages.styleHash+"'") {
		t.Errorf("the policy is %s", w.Header().Get("Content-Security-Policy"))
	}
}

func TestTimesAreSaidInTheUnitsThatMatter(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]string{
		12 * time.Second: "in 12 s", -3 * time.Minute: "3 min ago", 26*time.Hour + 5*time.Minute: "in 26 h 5 min",
		100 * time.Hour: "in 4 days", 0: "now", -500 * time.Millisecond: "now", 1: "in 1 s",
	} {
		if got := relative(now.Add(d), now); got != want {
			t.Errorf("%s from now is %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{340 * time.Millisecond: "340 ms", 1240 * time.Millisecond: "1.24 s", 24100 * time.Millisecond: "24.1 s", 3 * time.Minute: "3 min", -1: "0 s"} {
		if got := brief(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}
