package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/BurntSushi/toml"
)

// shared is a config that uses a little of everything.
const shared = `# A comment
[replica]
name = "a"
drain_timeout = "10s"
[redlock]
masters = ["redis://a:1", "redis://b:2", # here too
  'redis://c:3' ]
ttl = "5s"
drift_factor = 0.02
[store]
url = "sqlite:x.db"
[web]
token = "${TOKEN:-0123456789abcdef}"
allowed_hosts = []
[targets.shop]
url = """sqlite:shop.db"""
[jobs.a]
cron = ["*/5 9-17 * * MON-FRI", "@daily"]
at = 2026-12-01T09:00:00Z
timezone = "Europe/Berlin"
overlap = 'queue'
ttl = "1m30s"
[[jobs.a.steps]]
name = "one # two"
target = "shop"
sql = ["SELECT 1", """
  SELECT "[x]" # 2
"""]
expect_rows = 3
[[jobs.a.steps]]
command = ["sh", "-c", 'echo "$PATH"']
env = { A = "1", B = "]" }
[jobs."b.c"]
every = "2s"
[[jobs."b.c".steps]]
[jobs."b.c".steps.http]
url = "http://example.com/${PATH_:-x}"
expect_status = [200, 204]
[jobs."b.c".steps.http.headers]
Authorization = "Bearer x"
`

// noWorld has no variables and no files.
var noWorld = world{func(string) (string, bool) { return "", false }, fstest.MapFS{}}

// agree checks what is promised for any text: it is refused, with a place for each
// mistake, or it means what the TOML library says that it means.
func agree(t *testing.T, text string) {
	t.Helper()
	if c, err := parseConfig("x.toml", text, noWorld, nil); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			if !regexp.MustCompile(`^x\.toml:[1-9]\d*:[1-9]\d*: .`).MatchString(line) {
				t.Errorf("no place: %s", line)
			}
		}
	} else if len(c.Jobs) == 0 {
		t.Error("a config without jobs was accepted")
	}

	s := &source{places: map[string]place{}}
	tree, at := s.parse("x.toml", text)
	ours, theirs := defaults(), defaults()
	if tree != nil {
		s.decode(tree, reflect.ValueOf(ours).Elem(), nil)
		found(t, text, at, tree, nil)
	}
	meta, err := toml.Decode(text, theirs)
	if slices.ContainsFunc(s.bad, func(p problem) bool { n := len(p.key) - 1; return n >= 0 && p.key[n] != strings.ToLower(p.key[n]) }) {
		return // the library takes TTL for ttl, where we ask what was meant
	}
	good := err == nil && len(meta.Undecoded()) == 0
	if good != (len(s.bad) == 0) || good && !reflect.DeepEqual(ours, theirs) {
		t.Errorf("we say %v\n%+v\nthe library says %v %v\n%+v", s.bad, ours, err, meta.Undecoded(), theirs)
	}
	if t.Failed() {
		t.Fatalf("text:\n%s", text)
	}
}

// found checks that each value of a tree has its place, where its name stands.
func found(t *testing.T, text string, at positions, v any, key []string) {
	t.Helper()
	inside := func(v any, name string) { found(t, text, at, v, append(key[:len(key):len(key)], name)) }
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			inside(value, name)
		}
		return // [a.b] makes an a that stands nowhere
	case []map[string]any:
		for i, value := range v {
			inside(value, fmt.Sprint(i))
		}
	case []any:
		for i, value := range v {
			inside(value, fmt.Sprint(i))
		}
	}
	p, ok := at[path(key)]
	if !ok {
		t.Errorf("no place for %q", key)
		return
	}
	there := string([]rune(strings.Split(text, "\n")[p.line-1])[p.column-1:])
	name := key[len(key)-1]
	if !isIndex(name) && !strings.HasPrefix(strings.TrimLeft(there, "\"'["), name[:min(1, len(name))]) && !strings.Contains(there, ".") && !strings.Contains(there, `\`) {
		t.Errorf("%q is not at %v: %q", key, p, there)
	}
}

// mutate makes a mistake in a text.
func mutate(r *rand.Rand, text string) string {
	lines := strings.SplitAfter(text, "\n")
	line, other := r.IntN(len(lines)), r.IntN(len(lines))
	at := r.IntN(len(text))
	const letters = "\"'[]{}=.,#\\\n\t -_$0123456789abcxyzTZ:+é\x00"
	switch r.IntN(7) {
	case 0:
		return text[:at] + text[at+1:]
	case 1:
		return text[:at] + string(letters[r.IntN(len(letters))]) + text[at:]
	case 2:
		return text[:at] + string(letters[r.IntN(len(letters))]) + text[at+1:]
	case 3:
		lines[line] = ""
	case 4:
		lines[line] += lines[other]
	case 5:
		lines[line], lines[other] = lines[other], lines[line]
	case 6:
		return text[:at]
	}
	return strings.Join(lines, "")
}

func TestAMutatedConfigIsRefusedWithItsPlaceOrMeansWhatItSays(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	n := 10_000
	if os.Getenv("QUORATE_TEST_FULL") != "" {
		n = 200_000
	}
	for range n {
		text := mutate(r, shared)
		for r.IntN(3) == 0 {
			if text = mutate(r, text+"\n"); text == "" {
				text = "\n"
			}
		}
		agree(t, text)
	}
}

func TestAConfigMeansTheSameHoweverItIsWritten(t *testing.T) {
	want, err := parseConfig("x.toml", shared, noWorld, nil)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if _, err := toml.Decode(shared, &tree); err != nil {
		t.Fatal(err)
	}
	var anew bytes.Buffer
	if err := toml.NewEncoder(&anew).Encode(tree); err != nil {
		t.Fatal(err)
	}
	body := shared[strings.Index(shared, "[targets.shop]"):]
	for name, text := range map[string]string{
		"with other line ends": strings.ReplaceAll(shared, "\n", "\r\n"),
		"with the jobs first":  body + strings.TrimSuffix(shared, body),
		"by the library":       anew.String(),
		"in two files":         "include = \"more.toml\"\n" + strings.TrimSuffix(shared, body),
		"with blank lines":     regexp.MustCompile(`(?m)^(\[|\w+ =)`).ReplaceAllString(shared, "\n \t# x\n\n  $1"),
	} {
		w := world{noWorld.env, here(t, "more.toml", body)}
		got, err := parseConfig("x.toml", text, w, nil)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		got.source = want.source
		for _, j := range got.Jobs { // line ends within a text are its own
			for i := range j.Steps {
				for k := range j.Steps[i].SQL {
					j.Steps[i].SQL[k] = strings.ReplaceAll(j.Steps[i].SQL[k], "\r\n", "\n")
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, want)
		}
	}
}

func FuzzAConfigIsRefusedWithItsPlaceOrMeansWhatItSays(f *testing.F) {
	f.Add(sample)
	f.Add(shared)
	f.Add("[jobs.a]\nevery = \"1s\"\n[[jobs.a.steps]]\ncommand = [\"true\"]\n")
	f.Add("a = \"\"\"\n[x]\n\"\"\"\n[[b]]\nc = [ # ]\n 1]\n")
	f.Add("include = [\"*/*\"]\n")
	f.Fuzz(func(t *testing.T, text string) { agree(t, text) })
}

func FuzzAReferenceIsReplacedOrRefused(f *testing.F) {
	for _, seed := range []string{"${A}", "${A:-b}", "$${A}", "file:/x", "${", "$$${A}}", "${A:-${B}}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := noWorld.expand(value, "/")
		if err == nil && !strings.Contains(value, "${") && got != value {
			t.Errorf("%q became %q", value, got)
		}
	})
}
