package web

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"quorate/jobs"
)

// bareServer has only what signing in needs.
func bareServer(t *testing.T) *Server {
	t.Helper()
	a, err := newAuth(goodToken)
	if err != nil {
		t.Fatal(err)
	}
	return &Server{auth: a, pages: newPages()}
}

func (s *Server) follows(link string) *httptest.ResponseRecorder {
	u, _ := url.Parse(link)
	r := httptest.NewRequest("GET", u.RequestURI(), nil)
	r.Host = u.Host
	w := httptest.NewRecorder()
	s.signIn(w, r)
	return w
}

func TestATokenThatCouldBeGuessedIsRefused(t *testing.T) {
	for _, token := range []string{"", "short", "fifteen-charact"} {
		_, err := New(Config{Token: jobs.Secret(token)})
		if err == nil || !strings.Contains(err.Error(), "quorate token") {
			t.Errorf("token %q: %v, want an error that says how to make one", token, err)
		}
	}
}

func TestASignInLinkWorksOnceAndForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bareServer(t)
		link := s.SignInLink("http://127.0.0.1:8080/")
		if !strings.HasPrefix(link, "http://127.0.0.1:8080/signin?token=") {
			t.Fatalf("link is %s", link)
		}
		preview := httptest.NewRequest("HEAD", strings.TrimPrefix(link, "http://127.0.0.1:8080"), nil)
		s.signIn(httptest.NewRecorder(), preview) // must not use it up

		w := s.follows(link)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
			t.Fatalf("the link answers %d to %q, want 303 to /", w.Code, w.Header().Get("Location"))
		}
		cookie := w.Header().Get("Set-Cookie")
		for _, part := range []string{"quorate-8080=", "HttpOnly", "SameSite=Strict", "Path=/"} {
			if !strings.Contains(cookie, part) {
				t.Errorf("cookie %q lacks %s", cookie, part)
			}
		}
		if strings.Contains(cookie, "Secure") {
			t.Errorf("cookie %q is not sent back over plain HTTP", cookie)
		}
		if w := s.follows(link); w.Code != http.StatusUnauthorized || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("the second time it answers %d", w.Code)
		}
		late := s.SignInLink("http://127.0.0.1:8080")
		time.Sleep(linkLifetime + time.Second)
		if w := s.follows(late); w.Code != http.StatusUnauthorized {
			t.Errorf("after ten minutes it answers %d, want 401", w.Code)
		}
	})
}

func TestASessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bareServer(t)
		in := func(session string) bool {
			r := httptest.NewRequest("GET", "http://127.0.0.1:8080/", nil)
			r.Header.Set("Cookie", "quorate-8080="+session)
			_, err := s.auth.check(r)
			return err == nil
		}
		first, second := s.auth.begin(), s.auth.begin()
		if !in(first) || !in(second) || in("") || in(first+"x") {
			t.Fatal("sessions do not let in whom they should")
		}
		out := httptest.NewRequest("POST", "http://127.0.0.1:8080/signout", nil)
		out.Header.Set("Cookie", "quorate-8080="+first)
		s.signOut(httptest.NewRecorder(), out)
		if in(first) || !in(second) {
			t.Error("signing out ended another session than its own")
		}
		time.Sleep(sessionLifetime + time.Second)
		if in(second) {
			t.Error("a session outlived its time")
		}
	})
}

func TestSessionsAreBounded(t *testing.T) {
	s := bareServer(t)
	for range maxSessions + 50 {
		s.auth.begin()
		s.auth.link()
	}
	if n := len(s.auth.sessions); n > maxSessions {
		t.Errorf("%d sessions are kept, want %d at most", n, maxSessions)
	}
	if n := len(s.auth.links); n > maxSessions {
		t.Errorf("%d links are kept, want %d at most", n, maxSessions)
	}
}

func TestOverTLSTheCookieIsBoundToTheHost(t *testing.T) {
	r := httptest.NewRequest("GET", "https://quorate.example:8443/", nil)
	r.TLS = &tls.ConnectionState{}
	w := httptest.NewRecorder()
	setCookie(w, r, "session")
	cookie := w.Header().Get("Set-Cookie")
	for _, part := range []string{"__Host-quorate-8443=session", "Secure", "HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("cookie %q lacks %s", cookie, part)
		}
	}
	if strings.Contains(cookie, "Domain") {
		t.Errorf("cookie %q names a domain", cookie)
	}
}

func TestWrongTokensAreSlowedDownAndTheRightOneIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bareServer(t)
		post := func(token string) int {
			r := httptest.NewRequest("POST", "http://127.0.0.1:8080/signin", strings.NewReader(url.Values{"token": {token}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			s.signIn(w, r)
			return w.Code
		}
		codes := map[int]int{}
		for range 1000 {
			codes[post("wrong")]++
		}
		if codes[401] != wrongBurst || codes[429] != 1000-wrongBurst {
			t.Errorf("1000 wrong tokens are answered %v, want %d times 401, then 429", codes, wrongBurst)
		}
		if code := post(goodToken); code != http.StatusSeeOther {
			t.Errorf("the right token is answered %d meanwhile, want 303", code)
		}
		time.Sleep(3 * wrongEvery)
		codes = map[int]int{}
		for range 10 {
			codes[post("wrong")]++
		}
		if codes[401] != 3 {
			t.Errorf("three seconds later: %v, want three more 401", codes)
		}
	})
}

func TestTheWayBackStaysOnThisHost(t *testing.T) {
	for next, want := range map[string]string{
		"/runs/5": "/runs/5", "/?job=a&status=failed": "/?job=a&status=failed", "": "/",
		"//evil.example": "/", "/\\evil.example": "/", "https://evil.example/": "/", "javascript:alert(1)": "/",
		"/\t/evil.example": "/", "evil": "/", "/%zz": "/",
	} {
		if got := safeNext(next); got != want {
			t.Errorf("after signing in, %q leads to %q, want %q", next, got, want)
		}
	}
}
