package main

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"quorate/jobs"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of config.toml, for editors",
		Long: `Print the JSON schema of config.toml, for editors. One that knows TOML takes it from
the first line of a config: #:schema config.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			out.SetEscapeHTML(false)
			return out.Encode(configSchema())
		},
	}
}

// A schema is a JSON schema, draft 7, which editors of TOML understand.
type schema map[string]any

// configSchema is made of the same types that a config is read into: their names,
// their kinds, and the defaults that they have. What it says of them is what the
// sample says.
func configSchema() schema {
	c := defaults()
	job := &jobs.Job{Steps: []jobs.Step{{HTTP: &jobs.HTTP{}}}}
	job.Prepare() // fills in its defaults
	job.Steps[0].Name = ""
	c.Jobs = map[string]*jobs.Job{"*": job}
	c.Targets = map[string]Target{"*": {}}

	root := schemaOf(reflect.ValueOf(c), nil, explanations(sample))
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "config.toml of quorate"
	return root
}

// schemaOf describes a value and everything inside it. What the value is now is the
// default.
func schemaOf(v reflect.Value, key []string, explained map[string]explanation) schema {
	s := kindSchema(v, key, explained)
	if e := explained[strings.Join(key, ".")]; e.text != "" {
		s["description"] = e.text
	}
	if isValue(v.Type()) && !v.IsZero() {
		s["default"] = v.Interface()
	}
	return s
}

// isValue tells a value from a table, or a list of tables.
func isValue(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Pointer, reflect.Interface:
		return false
	case reflect.Slice:
		return isValue(t.Elem())
	}
	return true
}

// wordSchema describes a value that is written in a way of its own.
func wordSchema(v any) schema {
	oneOrMany := func(one schema) schema {
		return schema{"anyOf": []schema{one, {"type": "array", "items": one}}}
	}
	switch t := v.(type) {
	case interface{ Values() []string }:
		return schema{"type": "string", "enum": t.Values()}
	case jobs.Duration:
		return schema{"type": "string", "pattern": jobs.DurationPattern}
	case jobs.Durations:
		return oneOrMany(schema{"type": "string", "pattern": jobs.DurationPattern})
	case jobs.Strings:
		return oneOrMany(schema{"type": "string"})
	case jobs.Dates:
		return oneOrMany(schema{"type": "string", "format": "date"})
	case jobs.Times:
		return oneOrMany(schema{"type": "string", "format": "date-time"})
	case jobs.Instant:
		return schema{"type": "string", "format": "date-time"}
	}
	return nil
}

func kindSchema(v reflect.Value, key []string, explained map[string]explanation) schema {
	if s := wordSchema(v.Interface()); s != nil {
		return s
	}
	inside := func(v reflect.Value, name string) schema {
		return schemaOf(v, append(key[:len(key):len(key)], name), explained)
	}
	if reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return schema{"type": "string"}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v = reflect.New(v.Type().Elem())
		}
		return kindSchema(v.Elem(), key, explained)
	case reflect.Struct:
		properties := map[string]schema{}
		for name, f := range fieldsOf(v.Type()) {
			properties[name] = inside(v.FieldByIndex(f.Index), name)
		}
		return schema{"type": "object", "properties": properties, "additionalProperties": false}
	case reflect.Map:
		element := v.MapIndex(reflect.ValueOf("*"))
		if !element.IsValid() {
			element = reflect.Zero(v.Type().Elem())
		}
		return schema{"type": "object", "additionalProperties": inside(element, "*")}
	case reflect.Slice:
		element := reflect.Zero(v.Type().Elem())
		if element.Kind() == reflect.Struct && v.Len() > 0 {
			element = v.Index(0)
		}
		return schema{"type": "array", "items": inside(element, "*")}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Interface:
		return schema{}
	}
	switch {
	case v.CanInt():
		return schema{"type": "integer"}
	case v.CanFloat():
		return schema{"type": "number"}
	}
	return schema{"type": "string"}
}
