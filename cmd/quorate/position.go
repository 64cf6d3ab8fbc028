package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
)

// A position is a place in a text, counted from 1; 0 means that it is not known.
type position struct{ line, column int }

// positions says where the keys of a TOML text stand. The TOML library knows, but
// tells only for what it finds wrong by itself.
type positions map[string]position

// of returns where a key stands, or the nearest table around it that does.
func (p positions) of(key []string) position {
	for n := len(key); n > 0; n-- {
		if at, ok := p[strings.Join(key[:n], "\x00")]; ok {
			return at
		}
	}
	return position{}
}

var index = regexp.MustCompile(`\x00\d+(\x00|$)`)

// anywhere is of for a key that does not say which element of a list it is in: the
// first place that fits.
func (p positions) anywhere(key []string) (first position) {
	want := strings.Join(key, "\x00")
	for name, at := range p {
		fits := name == want || index.ReplaceAllString(name, "$1") == want
		if fits && (first.line == 0 || at.line < first.line) {
			first = at
		}
	}
	if first.line == 0 {
		return p.of(key)
	}
	return first
}

var (
	tableLine = regexp.MustCompile(`^\s*(\[\[?)([^\[\]]+)\]\]?\s*(#.*)?$`)
	keyLine   = regexp.MustCompile(`^\s*([A-Za-z0-9_\-."' ]+?)\s*=`)
	keyPart   = regexp.MustCompile(`"([^"]*)"|'([^']*)'|([A-Za-z0-9_\-]+)`)
)

// locate notes the place of every table and of every key that begins a line. The
// text may be broken: what is not understood is passed over.
func locate(text string) positions {
	at := positions{}
	tables := map[string]int{} // how many [[…]] of each name there were
	var table []string
	note := func(key []string, line, column int) {
		if name := strings.Join(key, "\x00"); at[name] == (position{}) {
			at[name] = position{line, column}
		}
	}
	rest := ""
	for i, line := range strings.Split(text, "\n") {
		if rest != "" { // inside a value of several lines
			rest = openAfter(line, rest)
			continue
		}
		column := len(line) - len(strings.TrimLeft(line, " \t")) + 1
		if m := tableLine.FindStringSubmatch(line); m != nil {
			table = split(m[2])
			if m[1] == "[[" {
				name := strings.Join(table, "\x00")
				table = append(table, fmt.Sprint(tables[name]))
				tables[name]++
			}
			note(table, i+1, column)
		} else if m := keyLine.FindStringSubmatch(line); m != nil {
			note(append(append([]string{}, table...), split(m[1])...), i+1, column)
			rest = openAfter(line[len(m[0]):], "")
		}
	}
	return at
}

func split(dotted string) (key []string) {
	for _, m := range keyPart.FindAllStringSubmatch(dotted, -1) {
		key = append(key, m[1]+m[2]+m[3])
	}
	return key
}

// openAfter returns what is still open after the line: brackets, or the quotes of
// a string of several lines; empty when the value is complete.
func openAfter(line, open string) string {
	for i := 0; i < len(line); {
		last := ""
		if open != "" {
			last = open[len(open)-1:]
		}
		at := line[i:]
		switch {
		case last == `"` || last == "'": // inside """ or '''
			if strings.HasPrefix(at, strings.Repeat(last, 3)) {
				open = open[:len(open)-1]
				i += 3
			} else if last == `"` && at[0] == '\\' {
				i += 2
			} else {
				i++
			}
		case at[0] == '#':
			return open
		case strings.HasPrefix(at, `"""`), strings.HasPrefix(at, "'''"):
			open += at[:1]
			i += 3
		case at[0] == '"' || at[0] == '\'':
			i += 1 + closing(at[1:], at[0])
		case at[0] == '[' || at[0] == '{':
			open += at[:1]
			i++
		case (at[0] == ']' || at[0] == '}') && open != "":
			open = open[:len(open)-1]
			i++
		default:
			i++
		}
	}
	return open
}

// closing returns how many bytes a string of one line takes, its quote included.
func closing(s string, quote byte) int {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && quote == '"' {
			i++
		} else if s[i] == quote {
			return i + 1
		}
	}
	return len(s)
}

// knownKeys lists the keys that the table at this path may have.
func knownKeys(t reflect.Type, path []string) (keys []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if len(path) > 0 && t.Kind() == reflect.Map {
		return knownKeys(t.Elem(), path[1:])
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		name := f.Tag.Get("toml")
		switch {
		case len(path) == 0 && name != "-":
			keys = append(keys, name)
		case len(path) > 0 && name == path[0]:
			return knownKeys(f.Type, path[1:])
		}
	}
	return keys
}

// nearest returns the name that was most likely meant, or nothing.
func nearest(word string, names []string) (best string) {
	least := len(word)/2 + 1
	for _, name := range names {
		if d := distance(strings.ToLower(word), name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`)

// expand replaces ${VAR} and ${VAR:-default}, and reads file:PATH.
func expand(value string, env lookup) (string, error) {
	var missing error
	value = variable.ReplaceAllStringFunc(value, func(ref string) string {
		m := variable.FindStringSubmatch(ref)
		if v, ok := env(m[1]); ok && v != "" {
			return v
		}
		if m[2] == "" {
			missing = fmt.Errorf("the environment variable %s is not set: set it, or give a default: ${%s:-…}", m[1], m[1])
		}
		return m[3]
	})
	if missing != nil {
		return "", missing
	}
	if path, ok := strings.CutPrefix(value, "file:"); ok {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(text)), nil
	}
	return value, nil
}
