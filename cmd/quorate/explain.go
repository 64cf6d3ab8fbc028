package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// An explanation is what the sample says about a key, and how it writes it.
type explanation struct {
	text string
	line string // key = value
}

var (
	commentedOut = regexp.MustCompile(`^# ([a-z_]+ = )`)
	behindValue  = regexp.MustCompile(`^(.*?\S)\s+# (.*)$`)
	goesOn       = regexp.MustCompile(`^#?\s{16,}# (.*)$`)
)

// explanations reads the comments of the sample: by the key, with * for what the
// config names itself, like jobs.*.steps.*.target. What stands behind a key is
// about it, or else the comment above. It is first come, first served.
func explanations(sample string) map[string]explanation {
	lines := strings.Split(sample, "\n")
	for i, line := range lines {
		lines[i] = commentedOut.ReplaceAllString(line, "$1")
	}
	places := locate(strings.Join(lines, "\n"))
	inOrder := slices.SortedFunc(maps.Keys(places), func(a, b string) int { return places[a].line - places[b].line })
	all := map[string]explanation{}
	for _, key := range inOrder {
		name, at := anyName(strings.Split(key, "\x00")), places[key]
		line := lines[at.line-1]
		e := explanation{line: line}
		if m := behindValue.FindStringSubmatch(line); m != nil {
			e = explanation{m[2], m[1]}
			for _, next := range lines[at.line:] {
				m := goesOn.FindStringSubmatch(next)
				if m == nil {
					break
				}
				e.text += " " + m[1]
			}
		} else if !strings.HasPrefix(line, "[") {
			e.text = above(lines[:at.line-1])
		}
		if old, ok := all[name]; !ok || old.text == "" {
			all[name] = e
		}
	}
	return all
}

// above returns the comment that ends here.
func above(lines []string) (text string) {
	for i := len(lines) - 1; i >= 0 && strings.HasPrefix(lines[i], "# ") && !strings.HasPrefix(lines[i], "# --"); i-- {
		text = strings.TrimSpace(lines[i][2:] + " " + text)
	}
	return text
}

// anyName puts * in the place of names and indexes.
func anyName(key []string) string {
	name := make([]string, len(key))
	for i, part := range key {
		if name[i] = part; isIndex(part) || i == 1 && (key[0] == "jobs" || key[0] == "targets") {
			name[i] = "*"
		}
	}
	return strings.Join(name, ".")
}
