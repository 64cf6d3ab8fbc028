package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// A problem is a mistake in a config, or something that is allowed and probably
// wrong.
type problem struct {
	place
	key     []string
	warning bool
	message string
}

// A place is where a key stands.
type place struct {
	file         string
	line, column int
}

func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column)
}

func (p problem) String() string {
	if p.warning {
		return oneLine(p.place.String() + ": warning: " + p.message)
	}
	return oneLine(p.place.String() + ": " + p.message)
}

// A configError is every mistake that was found in a config, one a line.
type configError struct{ problems []problem }

func (e *configError) Error() string {
	lines := make([]string, len(e.problems))
	for i, p := range e.problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// mistake is a configError of a single line.
func mistake(at place, format string, args ...any) *configError {
	return &configError{[]problem{{place: at, message: fmt.Sprintf(format, args...)}}}
}

// A source is the files of a config: where each key stands, and what is wrong.
type source struct {
	files  []string // the main file first
	places map[string]place
	bad    []problem
}

// of returns where a key stands, or the nearest table around it that does, or else
// the beginning of the main file.
func (s *source) of(key []string) place {
	for n := len(key); n > 0; n-- {
		if at, ok := s.places[path(key[:n])]; ok {
			return at
		}
	}
	return place{s.files[0], 1, 1}
}

// has reports whether the config says something about this very key.
func (s *source) has(key ...string) bool {
	_, ok := s.places[path(key)]
	return ok
}

func (s *source) problem(key []string, format string, args ...any) {
	s.problemAt(s.of(key), key, format, args...)
}

func (s *source) problemAt(at place, key []string, format string, args ...any) {
	s.bad = append(s.bad, problem{place: at, key: key, message: fmt.Sprintf(format, args...)})
}

func (s *source) warn(key []string, format string, args ...any) {
	s.problem(key, format, args...)
	s.bad[len(s.bad)-1].warning = true
}

// sorted returns the problems as they stand in the files, the mistakes or the
// warnings.
func (s *source) sorted(warnings bool) []problem {
	some := slices.DeleteFunc(slices.Clone(s.bad), func(p problem) bool { return p.warning != warnings })
	slices.SortStableFunc(some, func(a, b problem) int {
		return cmp.Or(cmp.Compare(slices.Index(s.files, a.file), slices.Index(s.files, b.file)),
			cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	return some
}

// err returns the mistakes.
func (s *source) err() error {
	if bad := s.sorted(false); len(bad) > 0 {
		return &configError{bad}
	}
	return nil
}

// A world is what a config may refer to: variables of the environment, and files,
// of which /etc/x is called etc/x.
type world struct {
	env   func(name string) (string, bool)
	files fs.FS
}

const maxFile = 1 << 20

// read returns a file's text.
func (w world) read(name string) (string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	f, err := w.files.Open(strings.TrimPrefix(abs, "/"))
	var failed *fs.PathError
	if errors.As(err, &failed) {
		err = failed.Err // the path as it was written is said already
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return string(text), err
}

// parse returns the text of a file as a tree of tables, and where its keys stand.
func (s *source) parse(file, text string) (map[string]any, positions) {
	s.files = append(s.files, file)
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		s.syntax(file, text, err)
		return nil, nil
	}
	return tree, locate(text)
}

// know remembers where keys stand. One that another file has too stays there.
func (s *source) know(file string, at positions) {
	for key, p := range at {
		if _, known := s.places[key]; !known {
			s.places[key] = place{file, p.line, p.column}
		}
	}
}

// syntax notes why a text is not TOML.
func (s *source) syntax(file, text string, err error) {
	at, message := place{file: file}, strings.TrimPrefix(err.Error(), "toml: ")
	var parse toml.ParseError
	if errors.As(err, &parse) {
		message = parse.Message
		start := min(max(parse.Position.Start, 0), len(text)) // it can be before the text
		line := text[:start][strings.LastIndexByte(text[:start], '\n')+1:]
		at.line, at.column = strings.Count(text[:start], "\n")+1, utf8.RuneCountInString(line)+1
	}
	s.problemAt(at, nil, "%s", message)
}
