package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"quorate/jobs"
)

const (
	minToken        = 16               // characters; `quorate token` makes more
	linkLifetime    = 10 * time.Minute // of a sign-in link, which works once
	sessionLifetime = 12 * time.Hour
	maxSessions     = 1000
	wrongBurst      = 10 // wrong tokens that are answered at once …
	wrongEvery      = time.Second
)

// A digest stands for a secret wherever we keep or compare one: a dump of our
// memory holds nothing to sign in with, and the time of a map lookup tells nothing.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

var (
	errNoCredential = errors.New("sign in, or send the header Authorization: Bearer TOKEN")
	errWrongToken   = errors.New("that is not the token of this cluster")
	errTooMany      = errors.New("too many wrong tokens: wait a few seconds")
)

// An auth knows who may come in: whoever has the token, or a session that began
// with the token or with a sign-in link. Links and sessions are random, live in
// this process alone, and end with it.
type auth struct {
	token digest

	mu       sync.Mutex
	links    map[digest]time.Time // until when
	sessions map[digest]time.Time
	wrong    float64 // tokens that were wrong and are not forgiven yet
	wrongAt  time.Time
}

func newAuth(token jobs.Secret) (*auth, error) {
	if n := len(token.Reveal()); n < minToken {
		return nil, fmt.Errorf("web token has %d characters, want %d at least: make one with `quorate token`", n, minToken)
	}
	return &auth{token: digestOf(token.Reveal()), links: map[digest]time.Time{}, sessions: map[digest]time.Time{}}, nil
}

// check says how the request proved that it may come in, or why it did not.
func (a *auth) check(r *http.Request) (by string, err error) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", errNoCredential
		}
		return "token", a.checkToken(strings.TrimSpace(token))
	}
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return "", errNoCredential
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if until, ok := a.sessions[digestOf(cookie.Value)]; ok && time.Now().Before(until) {
		return "session", nil
	}
	return "", errNoCredential
}

// checkToken compares in constant time. The right token passes whatever others
// have tried: a stranger's guesses must not lock the owner out, and a random token
// is not found by guessing. The limit is for the log and the processor.
func (a *auth) checkToken(token string) error {
	given := digestOf(token)
	if subtle.ConstantTimeCompare(given[:], a.token[:]) == 1 {
		return nil
	}
	return a.countWrong(errWrongToken)
}

func (a *auth) countWrong(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	forgiven := now.Sub(a.wrongAt).Seconds() / wrongEvery.Seconds()
	a.wrong, a.wrongAt = max(0, a.wrong-forgiven), now
	if a.wrong+1 > wrongBurst {
		return errTooMany
	}
	a.wrong++
	return err
}

// link mints a token that signs in once.
func (a *auth) link() string {
	token := rand.Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	keep(a.links, digestOf(token), linkLifetime)
	return token
}

// redeem trades the token of a sign-in link for a session.
func (a *auth) redeem(token string) (session string, err error) {
	a.mu.Lock()
	until, ok := a.links[digestOf(token)]
	delete(a.links, digestOf(token))
	a.mu.Unlock()
	if !ok || time.Now().After(until) {
		return "", a.countWrong(errWrongToken)
	}
	return a.begin(), nil
}

func (a *auth) begin() (session string) {
	session = rand.Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	keep(a.sessions, digestOf(session), sessionLifetime)
	return session
}

func (a *auth) end(session string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, digestOf(session))
}

// keep adds a secret and forgets those whose time is up, and the oldest of too many.
func keep(secrets map[digest]time.Time, d digest, lifetime time.Duration) {
	now := time.Now()
	var oldest digest
	for other, until := range secrets {
		if now.After(until) {
			delete(secrets, other)
		} else if first, ok := secrets[oldest]; !ok || until.Before(first) {
			oldest = other
		}
	}
	if len(secrets) >= maxSessions {
		delete(secrets, oldest)
	}
	secrets[d] = now.Add(lifetime)
}

// cookieName carries the port, because browsers send cookies to every port of a
// host: two quorates on localhost would sign each other's people out. Over TLS
// the browser itself enforces what __Host- promises.
func cookieName(r *http.Request) string {
	name := "quorate"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if r.TLS != nil {
		return "__Host-" + name
	}
	return name
}

func setCookie(w http.ResponseWriter, r *http.Request, session string) {
	cookie := &http.Cookie{
		Name: cookieName(r), Value: session, Path: "/", MaxAge: int(sessionLifetime.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
	if session == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// knownHost is the guard against DNS rebinding: a page elsewhere can point its own
// name at our address, but it cannot make the browser send another Host. So a name
// must be one that was configured. Loopback is fine on any port, since a forwarded
// port (ssh -L, kubectl port-forward) changes it; so is the very address that the
// connection was made to, which is how probes call.
func (s *Server) knownHost(r *http.Request) bool {
	if slices.ContainsFunc(s.cfg.Hosts, func(host string) bool { return strings.EqualFold(host, r.Host) }) {
		return true
	}
	name := (&url.URL{Host: r.Host}).Hostname()
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	if ip == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || ip == netip.IPv6Loopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	to, err := netip.ParseAddrPort(local.String())
	return err == nil && to.Addr().Unmap() == ip.Unmap()
}

// SignInLink mints a link that signs a browser in: once, and within ten minutes.
func (s *Server) SignInLink(base string) string {
	return strings.TrimSuffix(base, "/") + "/signin?token=" + s.auth.link()
}
