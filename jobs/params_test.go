package jobs

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestAParameterTakesWhatItsTypeAllowsAndNothingElse(t *testing.T) {
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		p     Param
		given any
		want  any // an error where it is one
	}{
		{Param{Type: ParamString}, "x'; DROP TABLE stock; --", "x'; DROP TABLE stock; --"},
		{Param{Type: ParamString}, 5.0, errors.New("want a string")},
		{Param{Type: ParamString}, "a\x00b", errors.New("is not a text")},
		{Param{Type: ParamString}, "\xff", errors.New("is not a text")},
		{Param{Type: ParamString}, strings.Repeat("x", maxParam+1), errors.New("want 16384 at most")},
		{Param{Type: ParamString, Pattern: "[a-z]+|x1"}, "abc", "abc"},
		{Param{Type: ParamString, Pattern: "[a-z]+|x1"}, "abc\n", errors.New("does not match")},
		{Param{Type: ParamString, Pattern: "a|b"}, "ac", errors.New("does not match")},
		{Param{Type: ParamString, Min: 2, Max: int64(3)}, "äö", "äö"},
		{Param{Type: ParamString, Min: 2, Max: int64(3)}, "ä", errors.New("its length of 1 is less than 2")},
		{Param{Type: ParamString, Min: 2, Max: int64(3)}, "abcd", errors.New("its length of 4 is more than 3")},
		{Param{Type: ParamInt}, "-42", int64(-42)},
		{Param{Type: ParamInt}, 42.0, int64(42)},
		{Param{Type: ParamInt}, int64(1) << 62, int64(1) << 62},
		{Param{Type: ParamInt}, "0x10", errors.New("want a whole number")},
		{Param{Type: ParamInt}, "9223372036854775808", errors.New("want a whole number")},
		{Param{Type: ParamInt}, 4.5, errors.New("want a whole number")},
		{Param{Type: ParamInt}, 1e300, errors.New("want a whole number")},
		{Param{Type: ParamInt}, true, errors.New("want a whole number")},
		{Param{Type: ParamInt, Min: int64(1), Max: int64(9)}, "0", errors.New("0 is less than 1")},
		{Param{Type: ParamInt, Min: int64(1), Max: int64(9)}, "10", errors.New("10 is more than 9")},
		{Param{Type: ParamFloat, Min: int64(1)}, "1.5e0", 1.5},
		{Param{Type: ParamFloat, Min: 2.5}, int64(2), errors.New("2 is less than 2.5")},
		{Param{Type: ParamFloat}, "NaN", errors.New("want a number")},
		{Param{Type: ParamFloat}, "Inf", errors.New("want a number")},
		{Param{Type: ParamFloat}, "0x1p4", errors.New("want a number")},
		{Param{Type: ParamBool}, "true", true},
		{Param{Type: ParamBool}, false, false},
		{Param{Type: ParamBool}, "yes", errors.New("want true or false")},
		{Param{Type: ParamTime}, "2026-12-01T13:00:00+01:00", noon},
		{Param{Type: ParamTime, Min: noon}, noon.Add(-1), errors.New("2026-12-01T11:59:59.999999Z is less than 2026-12-01T12:00:00Z")},
		{Param{Type: ParamTime}, "2026-12-01", errors.New("want an instant")},
		{Param{Type: ParamEnum, Values: []string{"small", "large"}}, "large", "large"},
		{Param{Type: ParamEnum, Values: []string{"small", "large"}}, "lrage", errors.New(`did you mean "large"?`)},
	} {
		got, err := c.p.Read(c.given)
		if want, ok := c.want.(error); ok {
			if err == nil || !strings.Contains(err.Error(), want.Error()) {
				t.Errorf("%+v of %v: %v, %v, want %v", c.given, c.p, got, err, want)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%+v of %v: %v, %v, want %v", c.given, c.p, got, err, c.want)
		}
	}
}

func TestARunHasAValueForEveryParameterOrIsRefused(t *testing.T) {
	j := Job{Name: "x", Params: map[string]Param{
		"sku": {Required: true}, "units": {Type: ParamInt, Default: int64(7)}, "note": {},
	}}
	if bad := j.checkParams(); len(bad) > 0 {
		t.Fatal(bad)
	}
	got, err := j.Bind(map[string]any{"sku": "apple", "note": nil})
	if err != nil || fmt.Sprint(got) != "map[note:<nil> sku:apple units:7]" {
		t.Errorf("%v, %v", got, err)
	}
	_, err = j.Bind(map[string]any{"skew": "apple", "units": "many"})
	if !errors.Is(err, ErrParams) {
		t.Error(err)
	}
	for _, want := range []string{`no parameter "skew": did you mean "sku"?`, `"sku" is required`, `"units": want a whole number`} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if _, err = new(Job).Bind(map[string]any{"x": 1}); !strings.Contains(fmt.Sprint(err), "the job has none") {
		t.Error(err)
	}
}

func TestAMistakenParameterIsRefused(t *testing.T) {
	for says, p := range map[string]Param{
		`did you mean "string"?`:       {Type: "strng"},
		"an enum has values":           {Type: ParamEnum},
		"values: is not for":           {Type: ParamInt, Values: []string{"1"}},
		"pattern: is not for":          {Type: ParamInt, Pattern: "x"},
		"min: is not for":              {Type: ParamBool, Min: 1},
		"max: is not for":              {Type: ParamEnum, Values: []string{"a"}, Max: 1},
		"is not a regular expression":  {Pattern: "("},
		"min: want a whole number":     {Min: "x"},
		"max: want an instant":         {Type: ParamTime, Max: int64(5)},
		"max: is less than min":        {Type: ParamFloat, Min: 2.0, Max: int64(1)},
		"default: want a whole number": {Type: ParamInt, Default: "x"},
		"default: 5 is more than 4":    {Type: ParamInt, Max: int64(4), Default: int64(5)},
		"ticks need a default":         {Required: true},
	} {
		j := Job{Name: "x", Params: map[string]Param{"p": p}, schedule: Schedule{part: everyPart(time.Second)}}
		if bad := fmt.Sprint(j.checkParams()); !strings.Contains(bad, says) || strings.Count(bad, "parameter") > 2 {
			t.Errorf("%+v: %s, want %s", p, bad, says)
		}
	}
	for _, name := range []string{"Due", "due", "run_id", "1st", "a-b", ""} {
		j := Job{Name: "x", Params: map[string]Param{name: {}}}
		if len(j.checkParams()) != 1 {
			t.Errorf("a parameter may be called %q", name)
		}
	}
}

// nasty are values that try to end what they stand in.
var nasty = []string{
	"plain", `a"b`, `\`, `"}, "admin": true, {"x": "`, "a\r\nX-Injected: 1", "a&b=c d+e", "<b>&amp;</b>]]>", "{{sku}}", "{{{{", "ü\u2028\x7f", "'; DROP TABLE x; --", "",
}

func TestAValueCannotEndWhatItStandsIn(t *testing.T) {
	for _, value := range nasty {
		checkPlaces(t, value)
	}
	run := Run{Job: "x", Params: Params{"n": int64(5), "f": 1.5, "b": true, "t": time.Unix(0, 0), "none": nil, "s": "a\"b"}, Due: time.Unix(60, 0), Fence: 7}
	body := run.Body(`{"n": {{n}}, "f": {{ f }}, "b": {{b}}, "t": {{t}}, "none": {{none}}, "s": {{s}}, "in": "{{n}} {{none}} {{s}}", "run": [{{fence}}, "{{due}}"], "x": "{{{{n}}"}`, "")
	want := `{"n": 5, "f": 1.5, "b": true, "t": "1970-01-01T00:00:00Z", "none": null, "s": "a\"b", "in": "5  a\"b", "run": [7, "1970-01-01T00:01:00Z"], "x": "{{n}}"}`
	if body != want {
		t.Errorf("%s\nwant\n%s", body, want)
	}
	if got := fmt.Sprintf("%q", run.Params.Environment()); got != `["QUORATE_PARAM_B=true" "QUORATE_PARAM_F=1.5" "QUORATE_PARAM_N=5" "QUORATE_PARAM_S=a\"b" "QUORATE_PARAM_T=1970-01-01T00:00:00Z"]` {
		t.Error(got)
	}
}

// checkPlaces puts a value into every kind of text, and reads it out again.
func checkPlaces(t *testing.T, value string) {
	t.Helper()
	run := Run{Params: Params{"sku": value}}

	var read map[string]any
	body := run.Body(`{"sku": {{sku}}, "more": "<{{sku}}>", "last": 1}`, "")
	if err := json.Unmarshal([]byte(body), &read); err != nil || read["sku"] != value || read["more"] != "<"+value+">" || len(read) != 3 {
		t.Errorf("%q as JSON: %s: %v", value, body, err)
	}
	lines := strings.Split(run.Body("{\"sku\": \"{{sku}}\"}\n{\"sku\": {{sku}}}", "application/x-ndjson"), "\n")
	for _, line := range lines {
		if err := json.Unmarshal([]byte(line), &read); err != nil || read["sku"] != value || len(lines) != 2 {
			t.Errorf("%q in a line of JSON: %q: %v", value, lines, err)
		}
	}
	form, err := url.ParseQuery(run.Body("a=1&sku={{sku}}&z=2", "application/x-www-form-urlencoded"))
	if err != nil || form.Get("sku") != value || len(form) != 3 {
		t.Errorf("%q in a form: %v, %v", value, form, err)
	}
	var element struct {
		A    string `xml:"a,attr"`
		Text string `xml:",chardata"`
	}
	body = run.Body(`<x a="{{sku}}">{{sku}}</x>`, "text/xml; charset=utf-8")
	legal := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			return '\uFFFD'
		}
		return r
	}, value)
	if err := xml.Unmarshal([]byte(body), &element); err != nil || element.A != legal || element.Text != legal {
		t.Errorf("%q in XML: %s: %+v, %v", value, body, element, err)
	}
	if header := run.Header("sku {{sku}}!"); strings.ContainsFunc(header, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%q in a header: %q", value, header)
	}
}

func TestAPlaceholderThatStandsForNothingIsRefused(t *testing.T) {
	names := []string{"due", "sku"}
	for text, says := range map[string]string{
		"{{skew}}": "did you mean {{sku}}?", "{{}}": "stands for nothing", "{{sku}} {{hunter2}}": "stands for nothing",
		"{{sku}}": "", "{{ due }}": "", "{{{{skew}}": "", "{a}": "", "{{not a name}}": "",
	} {
		err := checkTemplate(text, names)
		if says == "" && err != nil || says != "" && !strings.Contains(fmt.Sprint(err), says) || strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	if err := checkBody(`{"a": "\{{sku}}"}`, "application/json", names); err == nil {
		t.Error("a backslash would take the first character of the value")
	}
	if err := checkBody(`{"a": "\\{{sku}}"}`, "", names); err != nil {
		t.Error(err)
	}
}
