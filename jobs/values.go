package jobs

import (
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Duration is a time.Duration that TOML writes as text: "250ms", "1h30m", "90d".
type Duration time.Duration

func (d Duration) D() time.Duration { return time.Duration(d) }

// String leaves out the zero parts that time.Duration prints: 10m, not 10m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// DurationPattern is what ParseDuration reads.
const DurationPattern = `^([0-9]+d|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`

var durationRule = regexp.MustCompile(DurationPattern)

// ParseDuration is time.ParseDuration with days ("90d"), without signs, and with an
// error that says how to write it.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.Duration(0), error(nil)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	} else {
		d, err = time.ParseDuration(s)
	}
	if err != nil || !durationRule.MatchString(s) {
		return 0, fmt.Errorf("%q is not a duration: write a number with its unit, like \"500ms\", \"30s\", \"1h30m\" or \"90d\"", s)
	}
	return d, nil
}

// Strings is a TOML value that may be one string or a list of them.
type Strings []string

func (l *Strings) UnmarshalTOML(v any) error {
	return oneOrMany(v, "a string", func(item any) bool {
		s, ok := item.(string)
		*l = append(*l, s)
		return ok
	})
}

// Durations is a TOML value that may be one duration or a list of them.
type Durations []time.Duration

func (l *Durations) UnmarshalTOML(v any) error {
	var parse error
	err := oneOrMany(v, "a duration like \"30s\"", func(item any) bool {
		s, ok := item.(string)
		if !ok {
			return false
		}
		d, err := ParseDuration(s)
		if err != nil {
			parse = err
		}
		*l = append(*l, d)
		return true
	})
	if err != nil {
		return err
	}
	return parse
}

// Times is a TOML value that may be one instant or a list of them.
type Times []time.Time

func (l *Times) UnmarshalTOML(v any) error {
	return oneOrMany(v, anInstant, func(item any) bool {
		t, ok := instant(item)
		*l = append(*l, t)
		return ok
	})
}

// An Instant is a TOML date with its time and its offset.
type Instant struct{ time.Time }

func (i *Instant) UnmarshalTOML(v any) error {
	t, ok := instant(v)
	if !ok {
		return fmt.Errorf("want %s", anInstant)
	}
	i.Time = t
	return nil
}

const anInstant = "an instant like 2026-12-01T09:00:00Z, with its offset"

// instant refuses TOML's local times: they carry no offset, so replicas elsewhere
// would differ.
func instant(v any) (time.Time, bool) {
	t, ok := v.(time.Time)
	return t, ok && !strings.HasSuffix(t.Location().String(), "-local")
}

// Dates is a TOML value that may be one day of the calendar or a list of them, as
// text or as TOML's own date.
type Dates []string

func (l *Dates) UnmarshalTOML(v any) error {
	return oneOrMany(v, "a date like \"2026-12-25\"", func(item any) bool {
		if t, ok := item.(time.Time); ok && t.Location().String() == "date-local" {
			item = t.Format(time.DateOnly)
		}
		s, ok := item.(string)
		*l = append(*l, s)
		return ok
	})
}

func oneOrMany(v any, want string, take func(any) bool) error {
	items, many := v.([]any)
	if !many {
		items = []any{v}
	}
	for _, item := range items {
		if !take(item) {
			return fmt.Errorf("want %s, or a list of them, not %v", want, item)
		}
	}
	return nil
}

// A Secret is text that is used and never shown: it prints as *** whatever the
// verb, and in JSON and slog too. Reveal is the one way out.
type Secret string

func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

func (s Secret) Format(f fmt.State, _ rune)   { fmt.Fprint(f, s.String()) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(s.String()) }
