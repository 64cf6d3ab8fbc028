package main

import (
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"quorate/jobs"
)

// include takes the files that the main one names into the tree. They may hold any
// table; none may say again what another one has said, and none may include more.
func (s *source) include(tree map[string]any, w world) {
	key := []string{"include"}
	main := s.files[0]
	var patterns jobs.Strings
	if v, ok := tree["include"]; ok {
		s.decode(v, reflect.ValueOf(&patterns).Elem(), key)
		delete(tree, "include")
	}
	for _, pattern := range patterns {
		files, err := w.glob(filepath.Dir(main), pattern)
		switch {
		case err != nil:
			s.problem(key, "include %q: a pattern is like \"jobs.d/*.toml\"", pattern)
		case len(files) == 0 && !strings.ContainsAny(pattern, `*?[\`):
			s.problem(key, "include %q: no such file", pattern)
		case len(files) == 0:
			s.warn(key, "include %q: no file is called so", pattern)
		}
		for _, file := range files {
			if slices.Contains(s.files, file) {
				continue // by an earlier pattern
			}
			text, err := w.read(file)
			if err != nil {
				s.problem(key, "include %q: %s: %v", pattern, file, err)
				continue
			}
			s.merge(tree, file, text)
		}
	}
}

// glob returns the files that match a pattern, sorted, and named as it is: seen
// from dir, or absolute.
func (w world) glob(dir, pattern string) (files []string, err error) {
	if filepath.IsAbs(pattern) {
		dir = "/"
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	found, err := fs.Glob(w.files, strings.TrimPrefix(filepath.Join(root, pattern), "/"))
	for _, f := range found {
		if rel, err := filepath.Rel(root, "/"+f); err == nil {
			files = append(files, filepath.Join(dir, rel))
		}
	}
	return files, err
}

// merge adds the tables of a further file.
func (s *source) merge(tree map[string]any, file, text string) {
	more, at := s.parse(file, text)
	here := func(key ...string) place { return place{file, at[path(key)].line, at[path(key)].column} }
	twice := func(key ...string) {
		s.problemAt(here(key...), key, "[%s] is there already, at %s", strings.Join(key, "."), s.of(key))
	}
	for _, section := range slices.Sorted(maps.Keys(more)) {
		old, known := tree[section]
		into, isTable := old.(map[string]any)
		from, isTableToo := more[section].(map[string]any)
		switch {
		case section == "include":
			s.problemAt(here(section), []string{section}, "include: only the main file may include others")
		case !known:
			tree[section] = more[section]
		case !isTable || !isTableToo:
			twice(section)
		default:
			for _, name := range slices.Sorted(maps.Keys(from)) {
				if _, known := into[name]; known {
					twice(section, name)
				} else {
					into[name] = from[name]
				}
			}
		}
	}
	s.know(file, at)
}
