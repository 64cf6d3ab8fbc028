package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"quorate/jobs"
	"quorate/store"
)

//go:embed pages
var pageFiles embed.FS

const runsOnPage = 50

// pages are the templates. html/template escapes all that is put into them, and
// nothing here is ever marked as safe except our own style sheet.
type pages struct {
	templates map[string]*template.Template
	style     template.CSS // for the pages that are shown before anyone signed in
	styleHash string
	version   string // of the static files: it changes their address when they change
}

func newPages() *pages {
	p := &pages{templates: map[string]*template.Template{}}
	sum := sha256.New()
	for _, name := range []string{"app.css", "app.js", "icon.svg"} {
		sum.Write(pageFile(name))
	}
	p.version = hex.EncodeToString(sum.Sum(nil))[:12]
	style := pageFile("app.css")
	hash := sha256.Sum256(style)
	p.style, p.styleHash = template.CSS(style), base64.StdEncoding.EncodeToString(hash[:])

	layout := template.Must(template.New("layout.html").Funcs(pageFuncs).ParseFS(pageFiles, "pages/layout.html"))
	for _, name := range []string{"overview.html", "run.html", "signin.html", "problem.html"} {
		p.templates[name] = template.Must(template.Must(layout.Clone()).ParseFS(pageFiles, "pages/"+name))
	}
	return p
}

// pageFile is a file that was built in; that it is there, the tests say.
func pageFile(name string) []byte {
	data, err := fs.ReadFile(pageFiles, "pages/"+name)
	if err != nil {
		panic(err)
	}
	return data
}

// render writes a page. Pages hold forms, and a browser that must not name the page
// it comes from says "Origin: null" when it posts, which is another site to us; so
// pages name themselves to this site, and to no other.
func (p *pages) render(w http.ResponseWriter, status int, name string, data any) {
	var page bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&page, "layout.html", data); err != nil {
		writeProblem(w, http.StatusInternalServerError, "the page cannot be drawn")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	page.WriteTo(w)
}

// A page is what the layout needs around any content.
type page struct {
	Title   string
	Assets  string       // version of the static files
	Style   template.CSS // the style sheet itself, for who may not load it yet
	Cluster *Cluster     // nil where nobody has signed in
	Stream  string       // what the page follows, to stay up to date
	Now     time.Time
	Body    any
}

func (p *pages) bare(w http.ResponseWriter, status int, name, title string, body any) {
	w.Header().Set("Content-Security-Policy", contentPolicy("'sha256-"+p.styleHash+"'"))
	p.render(w, status, name, page{Title: title, Style: p.style, Now: time.Now().UTC(), Body: body})
}

func (p *pages) problem(w http.ResponseWriter, status int, detail string) {
	p.bare(w, status, "problem.html", http.StatusText(status), detail)
}

// signIn is the form; it comes back to the page that was asked for.
func (p *pages) signIn(w http.ResponseWriter, r *http.Request, status int, complaint string) {
	next := "/"
	switch {
	case r.URL.Path == "/signin":
		next = safeNext(r.PostFormValue("next"))
	case r.Method == http.MethodGet:
		next = safeNext(r.URL.RequestURI())
	}
	p.bare(w, status, "signin.html", "Sign in", struct{ Next, Complaint string }{next, complaint})
}

// safeNext keeps a way back that stays on this host.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\t\r\n") {
		return "/"
	}
	return next
}

// signIn opens a session for who brings a sign-in link or the token.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	session, err := "", error(nil)
	link := r.URL.Query().Get("token")
	switch {
	case r.Method == http.MethodPost:
		if err = s.auth.checkToken(strings.TrimSpace(r.PostFormValue("token"))); err == nil {
			session = s.auth.begin()
		}
	case r.Method == http.MethodGet && link != "":
		session, err = s.auth.redeem(link)
	default: // only looking, like the preview of a chat does with HEAD
		if _, err := s.auth.check(r); err == nil {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		s.pages.signIn(w, r, http.StatusUnauthorized, "")
		return
	}
	switch {
	case err == nil:
		setCookie(w, r, session)
		http.Redirect(w, r, safeNext(r.PostFormValue("next")), http.StatusSeeOther)
	case errors.Is(err, errTooMany):
		w.Header().Set("Retry-After", "5")
		s.pages.signIn(w, r, http.StatusTooManyRequests, "Too many wrong tokens. Wait a few seconds, then try again.")
	case link != "":
		s.pages.signIn(w, r, http.StatusUnauthorized, "This link was used already, or has run out. The token signs you in too.")
	default:
		s.pages.signIn(w, r, http.StatusUnauthorized, "That is not the token of this cluster.")
	}
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName(r)); err == nil {
		s.auth.end(cookie.Value)
	}
	setCookie(w, r, "")
	http.Redirect(w, r, "/signin", http.StatusSeeOther)
}

func (s *Server) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name != "app.css" && name != "app.js" && name != "icon.svg" {
		s.refuse(w, r, http.StatusNotFound, "there is no such file")
		return
	}
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(pageFile(name)))
}

// An overviewBody is the front page: what is configured, and what came of it.
type overviewBody struct {
	Jobs   []Job
	Runs   []Run
	Filter RunFilter
	Older  string // the address of the page of older runs
	Away   string // why the store has nothing to tell
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	filter := RunFilter{Job: q.Get("job"), Status: q.Get("status"), Limit: runsOnPage}
	filter.Before, _ = strconv.ParseInt(q.Get("before"), 10, 64)
	body := overviewBody{Filter: filter}
	away := func(err error) {
		if err != nil && body.Away == "" {
			_, body.Away = s.explain(err)
		}
	}
	cluster, err := s.cluster(r.Context())
	away(err)
	latest, err := s.cfg.Store.Latest(r.Context())
	away(err)
	runs, err := s.cfg.Store.Runs(r.Context(), store.Filter{
		Job: filter.Job, Status: jobs.Status(filter.Status), Before: filter.Before, Limit: runsOnPage,
	})
	away(err)

	now := time.Now().UTC()
	for _, j := range s.cfg.Scheduler.Jobs() {
		body.Jobs = append(body.Jobs, jobJSON(j, latest, now, 1))
	}
	body.Runs = runsJSON(runs)
	filter.Limit = 0
	if len(runs) == runsOnPage {
		older := filter
		older.Before = runs[len(runs)-1].ID
		body.Older = "/?" + older.query().Encode()
	}
	filter.Before = 0
	s.pages.render(w, http.StatusOK, "overview.html", page{
		Title: "quorate", Assets: s.pages.version, Cluster: &cluster, Now: now, Body: body,
		Stream: "/api/v1/runs/stream?" + filter.query().Encode(),
	})
}

func (s *Server) runPage(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		s.refuse(w, r, http.StatusNotFound, "runs have numbers, and "+quoted(r.PathValue("id"))+" is none")
		return
	}
	run, err := s.cfg.Store.Run(r.Context(), id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	cluster, err := s.cluster(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	page := page{
		Title:  fmt.Sprintf("%s, run %d", run.Job, run.ID),
		Assets: s.pages.version, Cluster: &cluster, Now: time.Now().UTC(), Body: runJSON(run),
	}
	if !run.Status.Final() {
		page.Stream = "/api/v1/runs/stream?" + RunFilter{Job: run.Job}.query().Encode()
	}
	s.pages.render(w, http.StatusOK, "run.html", page)
}

func (s *Server) runNowPage(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).SetWriteDeadline(time.Time{}) // as patient does
	out, err := s.runNow(r.Context(), &runNowIn{Name: r.PathValue("name")})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.Redirect(w, r, fmt.Sprintf("/runs/%d", out.Body.ID), http.StatusSeeOther)
}
