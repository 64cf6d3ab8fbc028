package jobs

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// A template is a text of a request in which {{name}} stands for a value of the run,
// and {{{{ for the characters {{ themselves. It is no language: there is nothing else.
// A value is escaped for the place where it stands, so that it can end neither a
// string nor a header.

var placeholder = regexp.MustCompile(`\{\{\{\{|\{\{ *([A-Za-z0-9_]*) *\}\}`)

// checkTemplate finds what stands for no value of a run, without showing it: the text
// may be a secret.
func checkTemplate(text string, names []string) error {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if m[0] == "{{{{" || slices.Contains(names, m[1]) {
			continue
		}
		hint := "there are " + strings.Join(names, ", ") + "; for the characters themselves write {{{{"
		if near := Nearest(m[1], names); near != "" {
			hint = fmt.Sprintf("did you mean {{%s}}?", near)
		}
		return fmt.Errorf("holds a {{…}} that stands for nothing: %s", hint)
	}
	return nil
}

// checkTemplates judges the requests of a job's steps.
func (j *Job) checkTemplates() (bad []Problem) {
	names := append(slices.Sorted(maps.Keys(j.Params)), builtIn...)
	for i, s := range j.Steps {
		problem := func(err error, key ...string) {
			if err != nil {
				path := append([]string{"jobs", j.Name, "steps", fmt.Sprint(i), "http"}, key...)
				bad = append(bad, Problem{path, fmt.Sprintf("step %q: %s %v", s.Name, key[len(key)-1], err)})
			}
		}
		if s.HTTP == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.HTTP.Headers)) {
			problem(checkTemplate(s.HTTP.Headers[name].Reveal(), names), "headers", name)
		}
		problem(checkBody(s.HTTP.Body, s.HTTP.contentType(), names), "body")
	}
	return bad
}

func (h *HTTP) contentType() string {
	for name, value := range h.Headers {
		if strings.EqualFold(name, "Content-Type") {
			return value.Reveal()
		}
	}
	return ""
}

// Fill returns the headers and the body of a request with the values of the run.
func (r Run) Fill(h *HTTP) (headers map[string]Secret, body string) {
	headers = map[string]Secret{}
	for name, value := range h.Headers {
		headers[name] = Secret(r.Header(value.Reveal()))
	}
	return headers, r.Body(h.Body, h.contentType())
}

// fill puts values into a template. What is written for a value may depend on the
// text since the last one.
func (r Run) fill(text string, write func(since string, v any) string) string {
	var out strings.Builder
	rest := 0
	since := 0
	for _, at := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(text[rest:at[0]])
		rest = at[1]
		if at[2] < 0 {
			out.WriteString("{{")
			continue
		}
		out.WriteString(write(text[since:at[0]], r.Value(text[at[2]:at[3]])))
		since = rest
	}
	return out.String() + text[rest:]
}

// Header fills the template of a header. What a header cannot carry is percent-encoded.
func (r Run) Header(text string) string {
	return r.fill(text, func(_ string, v any) string {
		var out strings.Builder
		for _, c := range []byte(inText(v)) {
			if c < ' ' || c >= 0x7f {
				fmt.Fprintf(&out, "%%%02X", c)
			} else {
				out.WriteByte(c)
			}
		}
		return out.String()
	})
}

// Body fills the template of a body: as JSON where the template or its content type
// is that, or else as the content type says; any other text takes values as they are.
func (r Run) Body(text, contentType string) string {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case isJSON(text, kind):
		var place jsonPlace
		return r.fill(text, func(since string, v any) string {
			if place.pass(since); place.inString {
				written := inJSON(inText(v))
				return written[1 : len(written)-1]
			}
			return inJSON(v)
		})
	case kind == "application/x-www-form-urlencoded":
		return r.fill(text, func(_ string, v any) string { return url.QueryEscape(inText(v)) })
	case strings.HasSuffix(kind, "xml"), kind == "text/html":
		return r.fill(text, func(_ string, v any) string {
			var out strings.Builder
			_ = xml.EscapeText(&out, []byte(inText(v))) // a Builder takes everything
			return out.String()
		})
	}
	return r.fill(text, func(_ string, v any) string { return inText(v) })
}

// isJSON reports whether a template makes JSON, or is meant to.
func isJSON(text, kind string) bool {
	if strings.HasSuffix(kind, "json") {
		return true
	}
	var place jsonPlace
	return json.Valid([]byte(Run{}.fill(text, func(since string, _ any) string {
		if place.pass(since); place.inString {
			return ""
		}
		return "0"
	})))
}

// checkBody also finds a value of JSON whose first character would be escaped by
// what stands before it.
func checkBody(text, contentType string, names []string) error {
	kind, _, _ := mime.ParseMediaType(contentType)
	err := checkTemplate(text, names)
	if err != nil || !isJSON(text, kind) {
		return err
	}
	var place jsonPlace
	Run{}.fill(text, func(since string, _ any) string {
		if place.pass(since); place.escaped {
			err = errors.New("has a backslash before {{")
		}
		return ""
	})
	return err
}

// A jsonPlace is where in a text of JSON one is.
type jsonPlace struct{ inString, escaped bool }

func (p *jsonPlace) pass(text string) {
	for _, c := range []byte(text) {
		switch {
		case p.escaped:
			p.escaped = false
		case p.inString && c == '\\':
			p.escaped = true
		case c == '"':
			p.inString = !p.inString
		}
	}
}
