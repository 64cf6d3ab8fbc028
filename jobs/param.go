package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Param is a value that whoever runs a job by hand may give it. Its job's ticks
// have the default. It reaches a step as a bound value, as a variable of the
// environment or escaped in a request: never as SQL text, nor as an argument.
type Param struct {
	Description string    `toml:"description"`
	Type        ParamType `toml:"type"`
	Default     any       `toml:"default"`
	Required    bool      `toml:"required"`
	Values      []string  `toml:"values"`  // of an enum
	Pattern     string    `toml:"pattern"` // of a whole string
	Min         any       `toml:"min"`     // of a number or a time; how many characters, of a string
	Max         any       `toml:"max"`
}

// A ParamType says what values a parameter has.
type ParamType string

const (
	ParamString ParamType = "string"
	ParamInt    ParamType = "int"
	ParamFloat  ParamType = "float"
	ParamBool   ParamType = "bool"
	ParamTime   ParamType = "time"
	ParamEnum   ParamType = "enum"
)

// Values are the words that it may be.
func (ParamType) Values() []string {
	return []string{string(ParamString), string(ParamInt), string(ParamFloat), string(ParamBool), string(ParamTime), string(ParamEnum)}
}

const maxParam = 16 << 10 // bytes of a string

var paramRule = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// builtIn are the names that every run has a value for.
var builtIn = []string{"due", "run_id", "fence", "job", "attempt", "replica"}

// Read turns what somebody typed, or what JSON or TOML brought, into the value: a
// string, int64, float64, bool or time.Time. Its error says what is wrong, not with
// which parameter.
func (p Param) Read(v any) (any, error) {
	value, err := p.convert(v)
	if err != nil {
		return nil, err
	}
	if text, ok := value.(string); ok {
		return value, p.checkText(text)
	}
	return value, p.checkBounds(value, "%s")
}

// checkBounds holds a value against min and max.
func (p Param) checkBounds(value any, named string) error {
	for _, bound := range []struct {
		limit any
		word  string
		over  int
	}{{p.Min, "less", -1}, {p.Max, "more", 1}} {
		if bound.limit == nil {
			continue
		}
		limit, err := p.convert(bound.limit)
		if err != nil {
			return err
		}
		if order(value, limit) == bound.over {
			return fmt.Errorf(named+" is %s than %s", inText(value), bound.word, inText(limit))
		}
	}
	return nil
}

// convert gives a value its type.
func (p Param) convert(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return p.parse(v)
	case int:
		return p.convert(int64(v))
	case int64:
		if p.Type == ParamInt {
			return v, nil
		} else if p.Type == ParamFloat {
			return float64(v), nil
		}
	case float64:
		if p.Type == ParamFloat && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v, nil
		} else if p.Type == ParamInt && v == math.Trunc(v) && math.Abs(v) <= 1<<53 { // as JSON has it
			return int64(v), nil
		}
	case bool:
		if p.Type == ParamBool {
			return v, nil
		}
	case time.Time:
		if t, ok := instant(v); ok && p.Type == ParamTime {
			return t.UTC().Truncate(time.Microsecond), nil
		}
	}
	return nil, fmt.Errorf("want %s", p.wanted())
}

func (p Param) parse(text string) (v any, err error) {
	switch p.Type {
	case ParamInt:
		v, err = strconv.ParseInt(text, 10, 64)
	case ParamFloat:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		if math.IsInf(f, 0) || math.IsNaN(f) || strings.ContainsAny(text, "xX_pP") {
			err = strconv.ErrRange
		}
		v = f
	case ParamBool:
		v = text == "true"
		if text != "true" && text != "false" {
			err = strconv.ErrSyntax
		}
	case ParamTime:
		var t time.Time
		t, err = time.Parse(time.RFC3339Nano, text)
		v = t.UTC().Truncate(time.Microsecond)
	default:
		return text, nil
	}
	if err != nil {
		return nil, fmt.Errorf("want %s", p.wanted())
	}
	return v, nil
}

func (p Param) wanted() string {
	switch p.Type {
	case ParamInt:
		return "a whole number"
	case ParamFloat:
		return "a number"
	case ParamBool:
		return "true or false"
	case ParamTime:
		return "an instant like 2026-12-01T09:00:00Z"
	}
	return "a string"
}

func (p Param) checkText(text string) error {
	switch {
	case p.Type == ParamEnum:
		if !slices.Contains(p.Values, text) {
			return fmt.Errorf("%q: %s", text, choose(text, p.Values))
		}
		return nil
	case len(text) > maxParam:
		return fmt.Errorf("has %d bytes: want %d at most", len(text), maxParam)
	case !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0:
		return fmt.Errorf("%q is not a text: want UTF-8 without zero bytes", text)
	}
	length := Param{Type: ParamInt, Min: p.Min, Max: p.Max}
	if err := length.checkBounds(int64(utf8.RuneCountInString(text)), "its length of %s"); err != nil {
		return err
	}
	pattern, err := p.pattern()
	if err != nil {
		return err
	}
	if p.Pattern != "" && !pattern.MatchString(text) {
		return fmt.Errorf("%q does not match the pattern %s", text, p.Pattern)
	}
	return nil
}

// pattern is of the whole string.
func (p Param) pattern() (*regexp.Regexp, error) { return regexp.Compile(`\A(?:` + p.Pattern + `)\z`) }

// order compares two values of one type: -1, 0 or 1.
func order(a, b any) int {
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(a, b)
		}
	case time.Time:
		if b, ok := b.(time.Time); ok {
			return a.Compare(b)
		}
	}
	return 0
}

// checkParams judges what a job says about its parameters.
func (j *Job) checkParams() (bad []Problem) {
	for _, name := range slices.Sorted(maps.Keys(j.Params)) {
		problem := func(key, format string, args ...any) {
			message := fmt.Sprintf("parameter %q: ", name) + fmt.Sprintf(format, args...)
			path := []string{"jobs", j.Name, "params", name}
			if key != "" {
				path = append(path, key)
			}
			bad = append(bad, Problem{path, message})
		}
		p := j.Params[name]
		if p.Type == "" {
			p.Type = ParamString
		}
		j.Params[name] = p
		if !paramRule.MatchString(name) {
			problem("", "use lower-case letters, digits and '_', beginning with a letter, at most 63")
		}
		if slices.Contains(builtIn, name) {
			problem("", "every run has a value of that name already")
		}
		for key, message := range p.check() {
			problem(key, "%s: %s", key, message)
		}
		if p.Required && p.Default == nil && !j.schedule.Never() {
			problem("required", "it is required, and job %q has a schedule: its ticks need a default", j.Name)
		}
	}
	return bad
}

// check returns what is wrong, by the key.
func (p Param) check() map[string]string {
	bad := map[string]string{}
	if !slices.Contains(p.Type.Values(), string(p.Type)) {
		bad["type"] = fmt.Sprintf("%q: %s", p.Type, choose(string(p.Type), p.Type.Values()))
		return bad
	}
	if p.Type == ParamEnum && len(p.Values) == 0 {
		bad["type"] = "an enum has values = [\"…\", \"…\"]"
	}
	for key, stray := range map[string]bool{
		"values": len(p.Values) > 0 && p.Type != ParamEnum, "pattern": p.Pattern != "" && p.Type != ParamString,
		"min": p.Min != nil && (p.Type == ParamBool || p.Type == ParamEnum), "max": p.Max != nil && (p.Type == ParamBool || p.Type == ParamEnum),
	} {
		if stray {
			bad[key] = fmt.Sprintf("is not for a parameter of type %s", p.Type)
		}
	}
	if _, err := p.pattern(); err != nil && p.Pattern != "" {
		bad["pattern"] = "is not a regular expression: " + err.Error()
	}
	bound := p
	if p.Type == ParamString {
		bound = Param{Type: ParamInt} // how many characters
	}
	low, lowErr := bound.convert(p.Min)
	high, highErr := bound.convert(p.Max)
	for key, err := range map[string]error{"min": lowErr, "max": highErr} {
		if err != nil && bad[key] == "" && (key == "min" && p.Min != nil || key == "max" && p.Max != nil) {
			bad[key] = err.Error()
		}
	}
	if low != nil && high != nil && order(low, high) > 0 {
		bad["max"] = "is less than min"
	}
	if len(bad) == 0 && p.Default != nil {
		if _, err := p.Read(p.Default); err != nil {
			bad["default"] = err.Error()
		}
	}
	return bad
}
