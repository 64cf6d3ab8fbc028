package main

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"quorate/jobs"
)

// decode puts a value of the tree into a Go value, over what is there, and notes
// every mistake on its way.
//
// The TOML library would do so too, and stop at the first.
func (s *source) decode(v any, into reflect.Value, key []string) {
	if into.Kind() == reflect.Pointer {
		if into.IsNil() {
			into.Set(reflect.New(into.Type().Elem()))
		}
		s.decode(v, into.Elem(), key)
		return
	}
	switch target := into.Addr().Interface().(type) {
	case interface{ UnmarshalTOML(any) error }:
		s.fits(key, target.UnmarshalTOML(v))
		return
	case encoding.TextUnmarshaler:
		switch v.(type) {
		case string, int64, float64:
			s.fits(key, target.UnmarshalText([]byte(fmt.Sprint(v))))
		default:
			s.mismatch("a string", v, key)
		}
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		s.table(v, into, key)
	case reflect.Map:
		s.names(v, into, key)
	case reflect.Slice:
		s.list(v, into, key)
	default:
		s.scalar(v, into, key)
	}
}

func (s *source) fits(key []string, err error) {
	if err != nil {
		s.problem(key, "%s: %v", key[len(key)-1], err)
	}
}

func (s *source) mismatch(want string, v any, key []string) {
	name := key[len(key)-1]
	if isIndex(name) {
		name = key[len(key)-2]
	}
	s.problem(key, "%s: want %s, not %s", name, want, kindOf(v))
}

// table fills a struct. A key that it does not have is a mistake.
func (s *source) table(v any, into reflect.Value, key []string) {
	tree, ok := v.(map[string]any)
	if !ok {
		s.mismatch("a table", v, key)
		return
	}
	known := fieldsOf(into.Type())
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		inside := append(key[:len(key):len(key)], name)
		if f, ok := known[name]; ok {
			s.decode(tree[name], into.FieldByIndex(f.Index), inside)
		} else {
			s.unknown(inside, slices.Sorted(maps.Keys(known)))
		}
	}
}

// fieldsOf returns the fields of a struct by their names in TOML.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("toml"); name != "" && name != "-" {
			fields[name] = f
		}
	}
	return fields
}

// unknown reports a key that its table does not have, and the nearest that it has.
func (s *source) unknown(key, known []string) {
	table := strings.Join(slices.DeleteFunc(slices.Clone(key[:len(key)-1]), isIndex), ".")
	if table != "" {
		table = " in [" + table + "]"
	}
	hint := ""
	if near := jobs.Nearest(key[len(key)-1], known); near != "" {
		hint = fmt.Sprintf(": did you mean %q?", near)
	}
	s.problem(key, "unknown key %q%s%s", key[len(key)-1], table, hint)
}

// isIndex reports whether a part of a key is the place in a list.
func isIndex(part string) bool { return part != "" && strings.Trim(part, "0123456789") == "" }

// names fills a map, whose keys are names that the config gives.
func (s *source) names(v any, into reflect.Value, key []string) {
	tree, ok := v.(map[string]any)
	if !ok {
		s.mismatch("a table", v, key)
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		element := reflect.New(into.Type().Elem()).Elem()
		s.decode(tree[name], element, append(key[:len(key):len(key)], name))
		into.SetMapIndex(reflect.ValueOf(name), element)
	}
}

func (s *source) list(v any, into reflect.Value, key []string) {
	var items []any
	switch v := v.(type) {
	case []any:
		items = v
	case []map[string]any:
		for _, item := range v {
			items = append(items, item)
		}
	case map[string]any:
		s.problem(key, "%s: want a list of tables: begin each with [[%s]]", key[len(key)-1], strings.Join(key, "."))
		return
	default:
		s.mismatch("a list", v, key)
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
	for i, item := range items {
		s.decode(item, into.Index(i), append(key[:len(key):len(key)], fmt.Sprint(i)))
	}
}

func (s *source) scalar(v any, into reflect.Value, key []string) {
	value := reflect.ValueOf(v)
	switch kind := into.Kind(); {
	case kind == reflect.String && value.Kind() == reflect.String:
		into.SetString(value.String())
	case kind == reflect.Bool && value.Kind() == reflect.Bool:
		into.SetBool(value.Bool())
	case into.CanInt() && value.Kind() == reflect.Int64 && !into.OverflowInt(value.Int()):
		into.SetInt(value.Int())
	case into.CanFloat() && value.CanFloat():
		into.SetFloat(value.Float())
	case into.CanFloat() && value.CanInt():
		into.SetFloat(float64(value.Int()))
	case kind == reflect.Interface:
		into.Set(value) // whoever asks for anything judges it
	default:
		s.mismatch(wanted(into), v, key)
	}
}

func wanted(into reflect.Value) string {
	switch {
	case into.Kind() == reflect.Bool:
		return "true or false"
	case into.CanInt():
		return "a whole number"
	case into.CanFloat():
		return "a number"
	}
	return "a string"
}

// kindOf says in the words of TOML what a value is.
func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64, float64:
		return "a number"
	case bool:
		return fmt.Sprint(v)
	case time.Time:
		return "a date"
	case map[string]any:
		return "a table"
	}
	return "a list"
}
