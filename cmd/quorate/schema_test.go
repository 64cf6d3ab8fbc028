package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func published(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile("../../docs/config.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestThePublishedSchemaIsThatOfTheTypes(t *testing.T) {
	out, code := quorate(t, "schema")
	text, err := os.ReadFile("../../docs/config.schema.json")
	if code != 0 || err != nil || out != string(text) {
		t.Errorf("docs/config.schema.json is not current: go run ./cmd/quorate schema > docs/config.schema.json (%v)", err)
	}
}

// refuses returns what a schema does not like about a value. It knows the words of
// JSON schema that ours uses, and fails at others.
func (s schema) refuses(v any, at string) (why []string) {
	for word, means := range s {
		switch word {
		case "$schema", "title", "description", "default", "format":
		case "type":
			if !isType(v, means.(string)) {
				why = append(why, fmt.Sprintf("%s: %v is not of type %s", at, v, means))
			}
		case "enum":
			if !slices.Contains(means.([]any), v) {
				why = append(why, fmt.Sprintf("%s: %v is none of %v", at, v, means))
			}
		case "pattern":
			if text, ok := v.(string); ok && !regexp.MustCompile(means.(string)).MatchString(text) {
				why = append(why, fmt.Sprintf("%s: %q does not match %s", at, text, means))
			}
		case "items":
			if list, ok := v.([]any); ok {
				for i, item := range list {
					why = append(why, schema(means.(map[string]any)).refuses(item, fmt.Sprintf("%s[%d]", at, i))...)
				}
			}
		case "anyOf":
			var all []string
			good := false
			for _, one := range means.([]any) {
				not := schema(one.(map[string]any)).refuses(v, at)
				all, good = append(all, not...), good || len(not) == 0
			}
			if !good {
				why = append(why, all...)
			}
		case "properties":
		case "additionalProperties":
			why = append(why, s.refusesTable(v, at)...)
		default:
			why = append(why, at+": the schema says "+word)
		}
	}
	return why
}

func (s schema) refusesTable(v any, at string) (why []string) {
	table, _ := v.(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	for name, value := range table {
		if p, ok := properties[name]; ok {
			why = append(why, schema(p.(map[string]any)).refuses(value, at+"."+name)...)
		} else if p, ok := s["additionalProperties"].(map[string]any); ok {
			why = append(why, schema(p).refuses(value, at+"."+name)...)
		} else {
			why = append(why, at+"."+name+": no such key")
		}
	}
	return why
}

func isType(v any, name string) bool {
	switch v := v.(type) {
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}

// inJSON reads TOML as JSON has it.
func inJSON(t *testing.T, text string) any {
	t.Helper()
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTheSchemaAcceptsWhatIsRightAndRefusesWhatIsNot(t *testing.T) {
	s := published(t)
	deployed, err := os.ReadFile("../../deploy/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"the sample": sample, "all of it": uncommented(), "the deployment": string(deployed), "shared": shared} {
		if why := s.refuses(inJSON(t, text), ""); len(why) > 0 {
			t.Errorf("%s: %s", name, strings.Join(why, "\n"))
		}
	}
	for _, text := range []string{
		"[redlock]\nttl = 5", "[redlock]\nttl = \"soon\"", "[jobs.a]\novrlap = \"skip\"", "[jobs.a]\noverlap = \"never\"",
		"[jobs.a]\nsteps = {}", "[[jobs.a.steps]]\nexpect_rows = \"3\"", "[[jobs.a.steps]]\ncommand = \"true\"", "masters = []",
		"[jobs.a]\ncron = 5", "[jobs.a]\nevery = [\"1\"]", "[redlock]\ndrift_factor = \"1\"",
	} {
		if why := s.refuses(inJSON(t, text), ""); len(why) == 0 {
			t.Errorf("accepted: %s", text)
		}
	}
}

// uncommented is the sample with what it comments out.
func uncommented() string {
	return regexp.MustCompile(`(?m)^# ([a-z_]+ = .*)$`).ReplaceAllString(sample, "$1")
}

// values returns the keys of a type that have a value, with * for names.
func values(t reflect.Type, key []string) (all []string) {
	inside := func(t reflect.Type, name string) []string { return values(t, append(key[:len(key):len(key)], name)) }
	switch t.Kind() {
	case reflect.Pointer:
		return values(t.Elem(), key)
	case reflect.Map, reflect.Slice:
		element := t.Elem()
		if element.Kind() == reflect.Pointer {
			element = element.Elem()
		}
		if element.Kind() == reflect.Struct && len(fieldsOf(element)) > 0 {
			return inside(element, "*")
		}
	case reflect.Struct:
		fields := fieldsOf(t)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			all = append(all, inside(fields[name].Type, name)...)
		}
	}
	if all == nil {
		all = []string{strings.Join(key, ".")}
	}
	return all
}

func TestTheSampleExplainsEveryKeyAndShowsItsDefault(t *testing.T) {
	explained := explanations(sample)
	for _, key := range values(reflect.TypeFor[Config](), nil) {
		if explained[key].text == "" {
			t.Errorf("config.toml does not explain %s", key)
		}
	}
	c := configSchema()
	for key, e := range explained {
		if strings.HasSuffix(key, ".ttl") && strings.HasPrefix(key, "jobs") || strings.Contains(e.text, "default: ") {
			continue // it is another one, and that is said
		}
		at := c
		for _, part := range strings.Split(key, ".") {
			properties, _ := at["properties"].(map[string]schema)
			next, ok := properties[part]
			if !ok {
				next, _ = at["additionalProperties"].(schema)
			}
			if next == nil {
				next, _ = at["items"].(schema)
			}
			at = next
		}
		if at["default"] == nil {
			continue
		}
		want, err := json.Marshal(at["default"])
		if err != nil {
			t.Fatal(err)
		}
		var shown map[string]any
		if _, err := toml.Decode(e.line, &shown); err != nil {
			t.Errorf("%s: %v", e.line, err)
		}
		got, _ := json.Marshal(shown[key[strings.LastIndexByte(key, '.')+1:]])
		if string(got) != string(want) {
			t.Errorf("the sample shows %s = %s, and the default is %s", key, got, want)
		}
	}
}
