package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"quorate/jobs"
)

// head is what every config needs besides jobs.
const head = `[redlock]
masters = ["redis://127.0.0.1:1"]
[store]
url = "sqlite:x.db"
[web]
token = "0123456789abcdef"
`

// say parses a config that stands in /etc/quorate.toml, beside these files.
func say(text string, files map[string]string) (*Config, error) {
	w := world{func(name string) (string, bool) {
		v, ok := map[string]string{"HOST": "db.example.com", "EMPTY": "", "WHERE": "file:/run/secret"}[name]
		return v, ok
	}, fstest.MapFS{}}
	for name, text := range files {
		w.files.(fstest.MapFS)[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return parseConfig("/etc/quorate.toml", text, w, nil)
}

// lines returns the mistakes without the name of the main file.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(strings.ReplaceAll(err.Error(), "/etc/quorate.toml:", ""), "\n")
}

func expect(t *testing.T, err error, want ...string) {
	t.Helper()
	got := lines(err)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("not said: %s", want[i])
		case i >= len(want):
			t.Errorf("said: %s", got[i])
		case !strings.HasPrefix(got[i], want[i]):
			t.Errorf("said: %s\nwant: %s", got[i], want[i])
		}
	}
}

func TestEveryMistakeOfAFileIsToldAtOnceWithItsPlace(t *testing.T) {
	_, err := say(`[redlock]
masters = [
  "redis://a:1", # one
  5,
  "redis://a:1",
]
ttl = "soon"
masster_timeout = "1s"
[store]
url = "${NOPE}"
[web]
token = "short"
[targets.shop]
url = "oracle://x"
[jobs.a]
cron = ["* * * * *", "61 * * * *"]
overlap = "skp"
timeout = "0s"
[[jobs.a.steps]]
http = { url = "ftp://x", metod = "GET", headers = { a = 1 } }
[[jobs.a.steps]]
comand = ["true"]
[[jobs.a.steps]]
target = "shp"
sql = "COMMIT"
  [jobs.a.steps.http]
  url = "http://x"
[jobs."b.c"]
steps = { command = ["true"] }
`, nil)
	expect(t, err,
		`4:3: masters: want a string, not a number`,
		`5:3: master 3 is master 1 again`,
		`7:1: ttl: "soon" is not a duration`,
		`8:1: unknown key "masster_timeout" in [redlock]: did you mean "master_timeout"?`,
		`10:1: store.url: the environment variable NOPE is not set`,
		`12:1: [web] token: want at least 16 characters`,
		`14:1: target "shop": the url is of no kind that is known`,
		`16:1: cron "61 * * * *": minute "61"`,
		`17:1: overlap "skp": want skip, queue or allow: did you mean "skip"?`,
		`18:1: timeout must be longer than zero`,
		`20:10: step "step1": url: want http://… or https://…`,
		`20:27: unknown key "metod" in [jobs.a.steps.http]: did you mean "method"?`,
		`20:54: a: want a string, not a number`,
		`22:1: unknown key "comand" in [jobs.a.steps]: did you mean "command"?`,
		`23:1: step "step3": has 2 of sql, http and command`,
		`24:1: step "step3": no target "shp" is defined: did you mean "shop"?`,
		`25:1: step "step3": COMMIT is not for a step to say`,
		`29:1: steps: want a list of tables: begin each with [[jobs.b.c.steps]]`,
	)
}

func TestATextThatIsNotTOMLIsRefusedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"[jobs.a]\nevery = 2s\n":         "2:",
		"a = 1\nb = \"x\n":               "2:",
		"[jobs.a]\n[jobs.b]\n[jobs.a]\n": "3:2: Key 'jobs.a' has already been defined",
		"ä = 1\né = [1,\n":               "",
		"a = \"\xff\"\n":                 "1:",
		"a = \"\x1b[31m\"\n":             "1:",
	} {
		_, err := say(text, nil)
		if got := lines(err); len(got) != 1 || !strings.HasPrefix(got[0], want) || !regexp.MustCompile(`^\d+:\d+: .`).MatchString(got[0]) || strings.Contains(got[0], "\x1b") {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestAFurtherFileIsAsGoodAsTheFirst(t *testing.T) {
	job := func(name string) string {
		return "[jobs." + name + "]\n[[jobs." + name + ".steps]]\ncommand = [\"true\"]\n"
	}
	c, err := say("include = [\"jobs.d/*.toml\", \"jobs.d/a.toml\", \"/srv/x.toml\"]\n"+head+job("main"), map[string]string{
		"etc/jobs.d/a.toml": job("a"), "etc/jobs.d/b.toml": job("b") + "[targets.shop]\nurl = \"sqlite:s.db\"\n",
		"etc/jobs.d/c.txt": "not toml", "srv/x.toml": job("x") + "[redlock]\nttl = \"20s\"\n",
	})
	if err != nil || len(c.Jobs) != 4 || c.Jobs["main"].TTL.String() != "20s" || c.Targets["shop"].URL == "" {
		t.Errorf("%v: %v", c, err)
	}
}

func TestAMistakeInAFurtherFileHasItsPlaceThere(t *testing.T) {
	_, err := say("include = [\"jobs.d/*.toml\", \"gone.toml\", \"[\"]\n"+head+"[jobs.a]\nevery = \"1s\"\n[[jobs.a.steps]]\ncommand = [\"true\"]\n", map[string]string{
		"etc/jobs.d/1.toml": "# here it is again\n[jobs.a]\nevery = \"2s\"\n[redlock]\nmasters = []\n",
		"etc/jobs.d/2.toml": "[jobs.b]\nevry = \"1s\"\n[[jobs.b.steps]]\ncommand = [\"true\"]\n",
		"etc/jobs.d/3.toml": "include = \"x\"\n[jobs.c]\ncron = \"x\"\n",
		"etc/jobs.d/4.toml": "[jobs\n",
		"etc/jobs.d/5.toml": "redlock = 5\n",
	})
	expect(t, err,
		`1:1: include "gone.toml": no such file`,
		`1:1: include "[": a pattern is like`,
		`/etc/jobs.d/1.toml:2:1: [jobs.a] is there already, at 8:1`,
		`/etc/jobs.d/1.toml:5:1: [redlock.masters] is there already, at 3:1`,
		`/etc/jobs.d/2.toml:2:1: unknown key "evry" in [jobs.b]: did you mean "every"?`,
		`/etc/jobs.d/3.toml:1:1: include: only the main file may include others`,
		`/etc/jobs.d/3.toml:2:1: job "c" has no steps`,
		`/etc/jobs.d/3.toml:3:1: cron "x" has 1 fields`,
		`/etc/jobs.d/4.toml:1:6: `,
		`/etc/jobs.d/5.toml:1:1: [redlock] is there already, at 2:1`,
	)
}

func TestAValueMayComeFromTheEnvironmentOrAFile(t *testing.T) {
	files := map[string]string{"run/secret": " s3cret\n", "etc/near": "near", "etc/empty": "\n", "etc/big": strings.Repeat("x", maxFile+1)}
	for value, want := range map[string]string{
		"postgres://${HOST}/x":       "postgres://db.example.com/x",
		"${NOPE:-a}${EMPTY:-b}":      "ab",
		"${NOPE:-}":                  "",
		"a$${HOST}$b":                "a${HOST}$b",
		"file:/run/secret":           "s3cret",
		"file:near":                  "near",
		"${WHERE}":                   "s3cret",
		"${NOPE}":                    "!the environment variable NOPE is not set",
		"${EMPTY}":                   "!the environment variable EMPTY is not set",
		"hunter2${HOST":              "!holds a ${ that is neither",
		"hunter2${1}":                "!holds a ${ that is neither",
		"file:/gone":                 "!file /gone: file does not exist",
		"file:empty":                 "!file /etc/empty is empty",
		"file:big":                   "!file /etc/big: is larger than",
		"${NOPE:-${HOST}}":           "${HOST}", // no default in a default
		"${HOST:-x} and ${HOST:-\n}": "db.example.com and db.example.com",
	} {
		if value == "${NOPE:-${HOST}}" {
			want = "${HOST" + "}"
		}
		_, err := say("[web]\ntoken = "+fmt.Sprintf("%q", value), files)
		c, _ := say(head+"[jobs.a]\n[[jobs.a.steps]]\nhttp = { url = \"http://x\", headers = { a = "+fmt.Sprintf("%q", value)+" } }\n", files)
		if mistake, ok := strings.CutPrefix(want, "!"); ok {
			if !strings.Contains(fmt.Sprint(err), "2:1: web.token: "+mistake) || strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Errorf("%s: %v, want %s", value, err, mistake)
			}
		} else if got := c.Jobs["a"].Steps[0].HTTP.Headers["a"].Reveal(); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}

// fill puts a secret into every place that holds one, and returns how many.
func fill(v reflect.Value) (filled int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				filled += fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0))
	case reflect.Map:
		element := reflect.New(v.Type().Elem()).Elem()
		filled = fill(element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("name"), element)
	case reflect.String:
		if v.Type() == reflect.TypeFor[jobs.Secret]() {
			v.SetString("hunter2")
			return 1
		}
	}
	return filled
}

func TestNoSecretOfAConfigIsEverPrinted(t *testing.T) {
	var c Config
	if n := fill(reflect.ValueOf(&c).Elem()); n < 5 {
		t.Fatalf("%d secrets found", n)
	}
	var log strings.Builder
	for _, h := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(h).Info("x", "config", c, "pointer", &c, "token", c.Web.Token, "masters", c.Redlock.Masters, "targets", c.Targets)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown := log.String() + string(text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%T"} { // vet refuses the others for a struct
		shown += fmt.Sprintf(verb, c) + fmt.Sprintf(verb, &c) + fmt.Sprintf(verb, c.Jobs["name"].Steps)
	}
	for verb := 'A'; verb <= 'z'; verb++ {
		if verb == 'p' || verb == 'w' {
			continue // nor does it let these through
		}
		for _, flags := range []string{"%", "%+", "%#", "% ", "%-20", "%.3", "%020"} {
			shown += fmt.Sprintf(flags+string(verb), c.Web.Token) + fmt.Sprintf(flags+string(verb), c.Redlock.Masters) + fmt.Sprintf(flags+string(verb), c.Targets["name"])
		}
	}
	for _, secret := range []string{"hunter2", fmt.Sprintf("%x", "hunter2"), fmt.Sprintf("%X", "hunter2"), "aHVudGVyM"} {
		if strings.Contains(shown, secret) {
			i := strings.Index(shown, secret)
			t.Errorf("shown: %.300s", shown[max(0, i-150):])
		}
	}
}

func TestAConfigIsReadFromThisMachine(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"c.toml":         "include = \"more/*.toml\"\n" + strings.Replace(head, "0123456789abcdef", "file:token", 1),
		"more/jobs.toml": "[jobs.a]\n[[jobs.a.steps]]\nhttp = { url = \"file:url\" }\n",
		"more/url":       "http://example.com\n", "token": "0123456789abcdef\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := loadConfig("c.toml", thisWorld())
	if err != nil || c.Web.Token.Reveal() != "0123456789abcdef" || c.Jobs["a"].Steps[0].HTTP.URL != "http://example.com" {
		t.Errorf("%+v: %v", c, err)
	}
	if err := os.WriteFile("more/jobs.toml", []byte("\n[jobs.a]\ncorn = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = loadConfig("c.toml", thisWorld()); !strings.HasPrefix(fmt.Sprint(err), "more/jobs.toml:3:1: unknown key") {
		t.Error(err)
	}
}

// here is a world's file system with one file in the folder of the test.
func here(t *testing.T, name, text string) fstest.MapFS {
	t.Helper()
	abs, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{strings.TrimPrefix(abs, "/"): &fstest.MapFile{Data: []byte(text)}}
}
