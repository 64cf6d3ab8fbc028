package jobs

import "regexp"

// HTTP is the request that an HTTP step sends.
type HTTP struct {
	Method  string            `toml:"method"`
	URL     string            `toml:"url" expand:"yes"`
	Headers map[string]Secret `toml:"headers"`
	Body    string            `toml:"body"`
	Expect  []int             `toml:"expect_status"`
}

var httpURL = regexp.MustCompile(`^https?://[^/]+`)

func (h *HTTP) check(problem func(key, format string, args ...any)) {
	if h.Method == "" {
		h.Method = "POST"
	}
	if len(h.Expect) == 0 {
		h.Expect = []int{200, 201, 202, 204}
	}
	if !httpURL.MatchString(h.URL) {
		problem("http.url", "url: want http://… or https://…") // what is there may hold a password
	}
}
