package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A position is a place in a text, counted from 1; 0 means that it is not known.
type position struct{ line, column int }

// positions says where the keys of a TOML text stand, and the elements of its
// lists. The TOML library knows, but tells only for what it finds wrong by itself.
type positions map[string]position

// path is the key of positions: the names and indexes that lead to a value.
func path(key []string) string { return strings.Join(key, "\x00") }

// locate notes the places of a text that is TOML. Where it is not, what is not
// understood is passed over.
func locate(text string) positions {
	l := locator{text: text, found: positions{}, tables: map[string]int{}, line: 1}
	l.document()
	return l.found
}

// A locator walks over a TOML text. It knows where values end, not what they are.
type locator struct {
	text   string
	at     int
	found  positions
	tables map[string]int // how many [[…]] of each path there were

	line, lineStart, seen int // of the last place that was noted
}

func (l *locator) note(key []string, offset int) {
	l.line += strings.Count(l.text[l.seen:offset], "\n")
	if i := strings.LastIndexByte(l.text[l.seen:offset], '\n'); i >= 0 {
		l.lineStart = l.seen + i + 1
	}
	l.seen = offset
	if _, ok := l.found[path(key)]; !ok {
		l.found[path(key)] = position{l.line, utf8.RuneCountInString(l.text[l.lineStart:offset]) + 1}
	}
}

func (l *locator) document() {
	var table []string
	for l.blank(" \t\r\n"); l.at < len(l.text); l.blank(" \t\r\n") {
		start := l.at
		if l.take('[') {
			list := l.take('[')
			table = l.element(l.key())
			if list {
				l.note(table, start) // as far as it is the first of them
				name := path(table)
				table = append(table, fmt.Sprint(l.tables[name]))
				l.tables[name]++
			}
			l.note(table, start)
		} else {
			l.assignment(table, start)
		}
		l.restOfLine(start)
	}
}

// element leads the name of a table through the last elements of the lists of
// tables that it passes: [a.b.c] below [[a.b]] is a.b.0.c.
func (l *locator) element(name []string) (table []string) {
	for i, part := range name {
		table = append(table, part)
		if n := l.tables[path(table)]; n > 0 && i < len(name)-1 {
			table = append(table, fmt.Sprint(n-1))
		}
	}
	return table
}

func (l *locator) assignment(table []string, start int) {
	key := append(append([]string{}, table...), l.key()...)
	l.note(key, start)
	if l.take('=') {
		l.value(key)
	}
}

// key reads a key with its dots.
func (l *locator) key() (key []string) {
	for {
		l.blank(" \t")
		start := l.at
		if l.at < len(l.text) && (l.text[l.at] == '"' || l.text[l.at] == '\'') {
			l.quoted()
			key = append(key, unquoted(l.text[start:l.at]))
		} else {
			for l.at < len(l.text) && !strings.ContainsRune(" \t\r\n.=[]{},\"'#", rune(l.text[l.at])) {
				l.at++
			}
			key = append(key, l.text[start:l.at])
		}
		l.blank(" \t")
		if !l.take('.') {
			return key
		}
	}
}

func unquoted(s string) string {
	if s[0] == '"' {
		if plain, err := strconv.Unquote(s); err == nil {
			return plain
		}
	}
	return strings.Trim(s, s[:1])
}

// value passes over a value, and notes what is inside.
func (l *locator) value(key []string) {
	l.blank(" \t")
	switch {
	case l.at == len(l.text):
	case l.take('['):
		for i := 0; ; i++ {
			l.blank(" \t\r\n")
			if l.at == len(l.text) || l.take(']') {
				return
			}
			inside := append(key[:len(key):len(key)], fmt.Sprint(i))
			start := l.at
			l.note(inside, start)
			l.value(inside)
			l.separator(start)
		}
	case l.take('{'):
		for {
			l.blank(" \t\r\n")
			if l.at == len(l.text) || l.take('}') {
				return
			}
			start := l.at
			l.assignment(key, start)
			l.separator(start)
		}
	case l.text[l.at] == '"' || l.text[l.at] == '\'':
		l.quoted()
	default:
		l.until("\r\n,]}#")
	}
}

// separator passes over the comma behind an element, and at least one byte since
// start.
func (l *locator) separator(start int) {
	l.blank(" \t\r\n")
	if !l.take(',') && l.at == start {
		l.at++
	}
}

func (l *locator) restOfLine(start int) {
	l.until("\n")
	if l.at == start && l.at < len(l.text) {
		l.at++
	}
}

// quoted passes over a string of one line or of several.
func (l *locator) quoted() {
	quote := l.text[l.at : l.at+1]
	end := quote
	if long := strings.Repeat(quote, 3); strings.HasPrefix(l.text[l.at:], long) {
		end = long
	}
	l.at += len(end)
	for l.at < len(l.text) {
		switch {
		case quote == `"` && l.text[l.at] == '\\':
			l.at = min(l.at+2, len(l.text))
		case strings.HasPrefix(l.text[l.at:], end):
			l.at += len(end)
			for len(end) == 3 && l.take(quote[0]) { // """a"""" ends with a quote of its own
			}
			return
		case len(end) == 1 && l.text[l.at] == '\n':
			return
		default:
			l.at++
		}
	}
}

// blank passes over these characters, and over comments where lines may end.
func (l *locator) blank(these string) {
	for l.at < len(l.text) {
		c := l.text[l.at]
		switch {
		case strings.IndexByte(these, c) >= 0:
			l.at++
		case c == '#' && strings.Contains(these, "\n"):
			l.until("\n")
		default:
			return
		}
	}
}

func (l *locator) until(these string) {
	if i := strings.IndexAny(l.text[l.at:], these); i >= 0 {
		l.at += i
		return
	}
	l.at = len(l.text)
}

func (l *locator) take(c byte) bool {
	if l.at < len(l.text) && l.text[l.at] == c {
		l.at++
		return true
	}
	return false
}
