package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Params are the values of a run's parameters, by name. One that was not given and
// has no default is nil, which is NULL in SQL.
type Params map[string]any

// ErrParams: what was given does not fit the job's parameters.
var ErrParams = errors.New("parameters do not fit")

// Bind gives every parameter of the job its value: what was given, or the default.
// The error names every mistake, and is ErrParams.
func (j *Job) Bind(given map[string]any) (Params, error) {
	all, bad := Params{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := j.Params[name]; ok {
			continue
		}
		hint := "the job has none"
		if names := slices.Sorted(maps.Keys(j.Params)); len(names) > 0 {
			hint = "there are " + strings.Join(names, ", ")
			if near := Nearest(name, names); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
		}
		bad = append(bad, fmt.Sprintf("no parameter %q: %s", name, hint))
	}
	for _, name := range slices.Sorted(maps.Keys(j.Params)) {
		p := j.Params[name]
		v := given[name]
		if v == nil {
			v = p.Default
		}
		if v == nil {
			if all[name] = nil; p.Required {
				bad = append(bad, fmt.Sprintf("parameter %q is required: want %s", name, p.wanted()))
			}
			continue
		}
		value, err := p.Read(v)
		if err != nil {
			bad = append(bad, fmt.Sprintf("parameter %q: %v", name, err))
		}
		all[name] = value
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrParams, strings.Join(bad, "; "))
	}
	return all, nil
}

// Environment is how a command gets them: QUORATE_PARAM_NAME=value. Those without a
// value are not set.
func (p Params) Environment() []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if p[name] != nil {
			env = append(env, "QUORATE_PARAM_"+strings.ToUpper(name)+"="+inText(p[name]))
		}
	}
	return env
}

// Value is what a name stands for in a run: one that every run has, or a parameter.
// Nil is no value.
func (r Run) Value(name string) any {
	switch name {
	case "due":
		return r.Due.UTC().Truncate(time.Microsecond)
	case "run_id":
		return r.ID
	case "fence":
		return int64(r.Fence)
	case "attempt":
		return int64(r.Attempt)
	case "job":
		return r.Job
	case "replica":
		return r.Replica
	}
	return r.Params[name]
}

// inText writes a value as people would.
func inText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}

// inJSON writes a value as a value of JSON.
func inJSON(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "null" // no value has such a type
	}
	return string(text)
}
