package jobs

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"
)

// Revision is a hash of all that some jobs say, of each secret only that it is there.
func Revision(all ...*Job) (string, error) {
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("revision of the jobs: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6]), nil
}

// Definition is what the job says, by key, for people to compare: steps.sell.target
// is shop. What says nothing is left out. Secrets are not shown, nor what of an
// address may be one.
func (j *Job) Definition() map[string]string {
	words := map[string]string{}
	describe(words, "", reflect.ValueOf(*j))
	names := make([]string, len(j.Steps))
	for i, s := range j.Steps {
		names[i] = s.Name
	}
	words["steps"] = strings.Join(names, ", ") // their order counts
	return words
}

// describe notes a value, or what is inside it.
func describe(words map[string]string, key string, v reflect.Value) {
	inside := func(name string) string { return strings.TrimPrefix(key+"."+name, ".") }
	if v.IsZero() {
		return
	}
	switch t := v.Interface().(type) {
	case Secret:
		words[key] = t.String()
		return
	case Strings:
		for i, text := range t {
			if len(t) == 1 {
				words[key] = text
			} else {
				words[inside(fmt.Sprint(i+1))] = text
			}
		}
		return
	case encoding.TextMarshaler:
		text, err := t.MarshalText()
		if err == nil && v.Kind() != reflect.Pointer {
			words[key] = string(text)
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		describe(words, key, v.Elem())
	case reflect.Struct:
		for name, f := range tagged(v.Type()) {
			if f.Tag.Get("expand") != "" {
				words[inside(name)] = hidden(v.FieldByIndex(f.Index).String())
			} else {
				describe(words, inside(name), v.FieldByIndex(f.Index))
			}
		}
	case reflect.Map:
		for _, name := range v.MapKeys() {
			describe(words, inside(name.String()), v.MapIndex(name))
		}
	case reflect.Slice:
		describeList(words, key, v)
	case reflect.String:
		words[key] = v.String()
	default:
		words[key] = fmt.Sprint(v.Interface())
	}
}

// describeList notes steps by their names, and other lists as one value.
func describeList(words map[string]string, key string, list reflect.Value) {
	items := make([]string, list.Len())
	for i := range items {
		item := list.Index(i)
		if step, ok := item.Interface().(Step); ok {
			describe(words, key+"."+step.Name, item)
			continue
		}
		switch t := item.Interface().(type) {
		case time.Duration:
			items[i] = Duration(t).String()
		case time.Time:
			items[i] = t.UTC().Format(time.RFC3339Nano)
		case string:
			items[i] = fmt.Sprintf("%q", t)
		default:
			items[i] = fmt.Sprint(t)
		}
	}
	words[key] = strings.Join(items, ", ")
}

// tagged returns the fields that TOML knows, by their names there.
func tagged(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("toml"); name != "" && name != "-" {
			fields[name] = f
		}
	}
	return fields
}

// hidden is an address with what may be secret taken out: all but the server.
func hidden(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "***"
	}
	if u.User == nil && strings.Trim(u.RequestURI(), "/") == "" {
		return address
	}
	return u.Scheme + "://" + u.Host + "/***"
}
