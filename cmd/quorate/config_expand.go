package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"quorate/jobs"
)

// expand replaces what stands for something else in every secret that a value
// holds, wherever it is, and in fields that are tagged for it.
func (s *source) expand(v reflect.Value, w world, key []string) {
	within := func(v reflect.Value, name string) { s.expand(v, w, append(key[:len(key):len(key)], name)) }
	switch {
	case v.Type() == reflect.TypeFor[jobs.Secret]():
		s.replace(v, w, key)
	case v.Kind() == reflect.Pointer && !v.IsNil():
		s.expand(v.Elem(), w, key)
	case v.Kind() == reflect.Struct:
		for name, f := range fieldsOf(v.Type()) {
			if f.Tag.Get("expand") != "" {
				s.replace(v.FieldByIndex(f.Index), w, append(key[:len(key):len(key)], name))
			} else {
				within(v.FieldByIndex(f.Index), name)
			}
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			within(v.Index(i), fmt.Sprint(i))
		}
	case v.Kind() == reflect.Map:
		for _, name := range v.MapKeys() {
			element := reflect.New(v.Type().Elem()).Elem() // one in a map cannot be set
			element.Set(v.MapIndex(name))
			within(element, name.String())
			v.SetMapIndex(name, element)
		}
	}
}

func (s *source) replace(v reflect.Value, w world, key []string) {
	text, err := w.expand(v.String(), filepath.Dir(s.of(key).file))
	if err != nil {
		s.problem(key, "%s: %v", strings.Join(key, "."), err)
	}
	v.SetString(text)
}

var reference = regexp.MustCompile(`\$?\$\{([^}]*\}?)`)
var variable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(:-((?s).*))?\}$`)

// expand replaces ${VAR} and ${VAR:-default}, and reads file:PATH, which is seen
// from dir. $${ stands for the characters ${ themselves.
func (w world) expand(value, dir string) (string, error) {
	var wrong error
	value = reference.ReplaceAllStringFunc(value, func(ref string) string {
		if plain, ok := strings.CutPrefix(ref, "$$"); ok {
			return "$" + plain
		}
		m := variable.FindStringSubmatch(ref[len("${"):])
		if m == nil {
			wrong = errors.New("holds a ${ that is neither ${NAME} nor ${NAME:-default}: write $${ for the characters themselves")
			return ""
		}
		if v, ok := w.env(m[1]); ok && v != "" {
			return v
		}
		if m[2] == "" {
			wrong = fmt.Errorf("the environment variable %s is not set: set it, or give a default: ${%s:-…}", m[1], m[1])
		}
		return m[3]
	})
	if wrong != nil {
		return "", wrong
	}
	name, ok := strings.CutPrefix(value, "file:")
	if !ok {
		return value, nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	text, err := w.read(name)
	if err != nil {
		return "", fmt.Errorf("file %s: %w", name, err)
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("file %s is empty", name)
	}
	return text, nil
}
