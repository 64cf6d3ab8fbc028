// Package quorate_test keeps the house in order: who may import whom, which
// library lives where, and how big things get. The README draws the house.
package quorate_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "quorate"

// A room is one package. Its code may import the rooms that it lists. Its tests may
// also look at every floor below, and use what is there for tests: looser, because
// a test has to build the whole path that it walks, but never upward.
type room struct {
	floor   int
	imports []string
}

// The house, from the roof down.
var house = map[string]room{
	"cmd/quorate": {6, []string{"web", "scheduler", "jobs/steps", "store", "store/postgres", "store/sqlite", "store/journal",
		"migrations", "redlock", "redlock/embedded", "jobs"}},
	"web":                {5, []string{"scheduler", "store", "redlock", "jobs"}},
	"scheduler":          {4, []string{"jobs/steps", "store", "store/journal", "redlock", "jobs"}},
	"jobs/steps":         {3, []string{"migrations", "jobs"}},
	"store/postgres":     {2, []string{"store", "migrations", "jobs"}},
	"store/sqlite":       {2, []string{"store", "migrations", "jobs"}},
	"store/storetest":    {2, []string{"store", "jobs"}},
	"store/journal":      {2, []string{"store", "jobs"}},
	"store":              {2, []string{"jobs"}},
	"redlock/gocronlock": {2, []string{"redlock"}},
	"redlock/embedded":   {1, nil},
	"redlock":            {1, nil},
	"jobs":               {1, nil},
	"migrations":         {1, nil},
	"internal/testenv":   {0, nil},
	".":                  {0, nil}, // this test
}

// What is there for tests alone.
var forTests = []string{"internal/testenv", "redlock/embedded", "store/storetest"}

// Where code may import each library: a room, or one file of it. A library that
// is not here is one that nobody gave a reason for.
var libraries = map[string][]string{
	"github.com/BurntSushi/toml":                  {"cmd/quorate"},
	"github.com/alicebob/miniredis/v2":            {"redlock/embedded"},
	"github.com/danielgtaylor/huma/v2":            {"web"},
	"github.com/go-co-op/gocron/v2":               {"scheduler/scheduler.go", "redlock/gocronlock"},
	"github.com/go-sql-driver/mysql":              {"jobs/steps", "internal/testenv"},
	"github.com/google/uuid":                      {"scheduler/scheduler.go"}, // gocron names jobs by it
	"github.com/jackc/pgx/v5":                     {"store/postgres", "jobs/steps", "internal/testenv"},
	"github.com/jackc/puddle/v2":                  {"store/postgres"}, // the errors of pgx's pool
	"github.com/moby/moby/api":                    {"internal/testenv"},
	"github.com/moby/moby/client":                 {"internal/testenv"},
	"github.com/prometheus/client_golang":         {"web", "cmd/quorate"},
	"github.com/redis/go-redis/v9":                {"redlock"},
	"github.com/spf13/cobra":                      {"cmd/quorate"},
	"github.com/testcontainers/testcontainers-go": {"internal/testenv"},
	"golang.org/x/sys":                            {"redlock/clock_linux.go"}, // the clock that runs on during sleep
	"modernc.org/sqlite":                          {"store/sqlite", "jobs/steps"},
}

// Libraries that only tests may import. Tests may import all the others too, to
// look at a server from the other side.
var testLibraries = []string{
	"github.com/chromedp/chromedp",
	"github.com/chromedp/cdproto",
	"github.com/rogpeppe/go-internal",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
	"github.com/anishathalye/porcupine",
}

// A file is one Go file of ours, whatever its build constraints.
type file struct {
	path   string // jobs/steps/sql.go
	room   string // jobs/steps
	test   bool
	lines  int
	syntax *ast.File
	set    *token.FileSet
}

func TestArrowsPointDown(t *testing.T) {
	for _, f := range files(t) {
		at, known := house[f.room]
		if !known {
			t.Errorf("%s: room %s is not in the house: draw it in the README, and here", f.path, f.room)
			continue
		}
		for _, imported := range f.imports(t) {
			to, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			switch {
			case to == f.room, slices.Contains(at.imports, to): // an external test imports its own room
			case f.test && (slices.Contains(forTests, to) || house[to].floor < at.floor):
			case f.test:
				t.Errorf("%s imports %s: a test of %s (floor %d) may look at the floors below, not at floor %d",
					f.path, to, f.room, at.floor, house[to].floor)
			case to == "internal/testenv":
				t.Errorf("%s imports %s: only _test.go files may", f.path, to)
			default:
				t.Errorf("%s imports %s: no arrow %s → %s in the house, only to [%s]",
					f.path, to, f.room, to, strings.Join(at.imports, " "))
			}
		}
	}
}

func TestLibrariesStayInTheirRooms(t *testing.T) {
	for _, f := range files(t) {
		for _, imported := range f.imports(t) {
			host, _, _ := strings.Cut(imported, "/")
			if !strings.Contains(host, ".") {
				continue // the standard library, or ours
			}
			library, rooms := libraryOf(imported)
			switch {
			case f.test && library != "":
			case library == "":
				t.Errorf("%s imports %s: a library without a room; give it one here, and its reason in the commit message",
					f.path, imported)
			case rooms == nil:
				t.Errorf("%s imports %s: only _test.go files may", f.path, imported)
			case !slices.Contains(rooms, f.room) && !slices.Contains(rooms, f.path):
				t.Errorf("%s imports %s: it lives in %s alone", f.path, imported, strings.Join(rooms, " and "))
			}
		}
	}
}

// libraryOf returns the library that a package belongs to, and its rooms: none
// for one that is for tests alone.
func libraryOf(imported string) (library string, rooms []string) {
	within := func(library string) bool {
		return imported == library || strings.HasPrefix(imported, library+"/")
	}
	for library, rooms := range libraries {
		if within(library) {
			return library, rooms
		}
	}
	if i := slices.IndexFunc(testLibraries, within); i >= 0 {
		return testLibraries[i], nil
	}
	return "", nil
}

func TestRoomsAreNamedAndSayWhatTheyAreFor(t *testing.T) {
	said := map[string]bool{}
	for _, f := range files(t) {
		switch path.Base(f.room) {
		case "util", "utils", "common", "helper", "helpers", "misc":
			t.Errorf("%s: a room named %s holds anything: name what it is for", f.path, path.Base(f.room))
		}
		says := f.syntax.Doc != nil && (!f.test || f.room == ".")
		said[f.room] = said[f.room] || says
	}
	for room, ok := range said {
		if !ok {
			t.Errorf("%s: no file has a package comment: what may live here, what it promises, what it does not", room)
		}
	}
}

func TestFilesAndFunctionsFitTheHead(t *testing.T) {
	const maxFile, maxFunc, reason = 400, 60, "This file is long because"
	for _, f := range files(t) {
		if f.lines > maxFile && !strings.Contains(f.head(), reason) {
			t.Errorf("%s: %d lines, more than %d: split it, or begin a comment above its first declaration with %q",
				f.path, f.lines, maxFile, reason)
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			fn, ok := n.(*ast.FuncDecl)
			if !ok {
				return true
			}
			if lines := f.line(fn.End()) - f.line(fn.Pos()) + 1; lines > maxFunc {
				t.Errorf("%s:%d: func %s has %d lines, more than %d", f.path, f.line(fn.Pos()), fn.Name.Name, lines, maxFunc)
			}
			return false
		})
	}
}

// files reads every Go file of this module.
func files(t *testing.T) []file {
	t.Helper()
	var all []file
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(name)
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		at := filepath.ToSlash(name)
		all = append(all, file{path: at, room: path.Dir(at), test: strings.HasSuffix(at, "_test.go"),
			lines: bytes.Count(source, []byte("\n")), syntax: syntax, set: set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 2 {
		t.Fatalf("only %d Go files found: not in the root of the module", len(all))
	}
	return all
}

// skip says which folders are not ours to judge: hidden ones, test data, and
// modules of their own.
func skip(dir string) error {
	base := filepath.Base(dir)
	if dir == "." {
		return nil
	}
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func (f file) imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, spec := range f.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: %v", f.path, err)
		}
		paths = append(paths, imported)
	}
	return paths
}

// head returns the comments above the first declaration that is not an import.
func (f file) head() string {
	end := f.syntax.End()
	for _, d := range f.syntax.Decls {
		if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
			end = d.Pos()
			break
		}
	}
	var head strings.Builder
	for _, c := range f.syntax.Comments {
		if c.Pos() < end {
			head.WriteString(c.Text())
		}
	}
	return head.String()
}

func (f file) line(p token.Pos) int { return f.set.Position(p).Line }
