package steps

import (
	"errors"
	"fmt"
	"strings"
)

// Kinds of pieces that a statement is made of.
type kind int

const (
	blank  kind = iota // space and comments
	word               // a name or a key word, not quoted
	quoted             // a string or a quoted name
	param              // :name
	symbol             // all else, mostly one character
)

// A scanner cuts a statement into pieces; put together they are the statement. It
// knows as much of SQL as is needed to tell a parameter from a colon, a quote or a
// comment, and no more.
type scanner struct {
	d    *dialect
	rest string

	last   string // the latest piece that was not blank, words in upper case
	glued  bool   // it stands right before rest
	within []byte // what is open: '(' , 's' for a subscript, 'a' for an array
}

func (s *scanner) next() (kind, string, error) {
	k, n, err := s.measure()
	if err != nil {
		return 0, "", err
	}
	piece := s.rest[:n]
	s.rest = s.rest[n:]
	s.glued = k != blank
	if k == symbol {
		s.track(piece)
	}
	if k != blank {
		s.last = strings.ToUpper(piece)
	}
	return k, piece, nil
}

// measure says what the next piece is, and how long.
func (s *scanner) measure() (kind, int, error) {
	c := s.rest[0]
	switch {
	case isSpace(c):
		return blank, span(s.rest, isSpace), nil
	case s.comment():
		return blank, span(s.rest, func(c byte) bool { return c != '\n' }), nil
	case strings.HasPrefix(s.rest, "/*"):
		n, err := s.blockComment()
		return blank, n, err
	case c == '\'', c == '"', c == '`' && !s.d.estrings:
		n, err := s.quote(c)
		return quoted, n, err
	case c == '[' && s.d.brackets:
		n := strings.IndexByte(s.rest, ']') + 1
		if n == 0 {
			return 0, 0, errors.New("a [ is not closed")
		}
		return quoted, n, nil
	case c == '$' && s.d.estrings:
		n, err := s.dollarQuote()
		if n > 0 || err != nil {
			return quoted, n, err
		}
	case c == ':':
		return s.colon()
	case isDigit(c):
		return symbol, span(s.rest, isName), nil
	case isName(c) && c != '$':
		return word, span(s.rest, isName), nil
	}
	return symbol, 1, nil
}

// comment reports whether a comment begins that ends with its line.
func (s *scanner) comment() bool {
	if !s.d.hash {
		return strings.HasPrefix(s.rest, "--")
	}
	if s.rest[0] == '#' || s.rest == "--" {
		return true
	}
	return strings.HasPrefix(s.rest, "--") && s.rest[2] <= ' '
}

func (s *scanner) blockComment() (int, error) {
	if s.d.hash && (strings.HasPrefix(s.rest, "/*!") || strings.HasPrefix(s.rest, "/*M!")) {
		return 0, errors.New("/*! … */ is run by some servers and not by others: write it out")
	}
	depth := 1
	for i := 2; i+1 < len(s.rest); i++ {
		switch s.rest[i : i+2] {
		case "*/":
			if depth--; depth == 0 {
				return i + 2, nil
			}
			i++
		case "/*":
			if s.d.nested {
				depth++
				i++
			}
		}
	}
	return 0, errors.New("a /* is not closed")
}

// quote measures what stands in quotes. A doubled quote needs no care: it reads as
// the end of one string and the beginning of the next.
func (s *scanner) quote(mark byte) (int, error) {
	escaped := s.d.backslash && mark != '`' || s.d.estrings && mark == '\'' && s.glued && s.last == "E"
	for i := 1; i < len(s.rest); i++ {
		switch {
		case escaped && s.rest[i] == '\\':
			i++
		case s.rest[i] == mark:
			if escaped && i+1 < len(s.rest) && s.rest[i+1] == mark {
				i++ // the next string is escaped like this one, so it is a part of it
				continue
			}
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("a %c is not closed", mark)
}

// dollarQuote measures $tag$ … $tag$; 0 if that is not what begins here.
func (s *scanner) dollarQuote() (int, error) {
	n := 1 + span(s.rest[1:], func(c byte) bool { return isName(c) && c != '$' })
	if n == len(s.rest) || s.rest[n] != '$' || n > 1 && isDigit(s.rest[1]) {
		return 0, nil
	}
	tag := s.rest[:n+1]
	end := strings.Index(s.rest[len(tag):], tag)
	if end < 0 {
		return 0, fmt.Errorf("a %s is not closed", tag)
	}
	return len(tag) + end + len(tag), nil
}

// colon tells a parameter from a cast, an assignment and the bounds of a slice.
func (s *scanner) colon() (kind, int, error) {
	if len(s.rest) > 1 && (s.rest[1] == ':' || s.rest[1] == '=') {
		return symbol, 2, nil
	}
	n := 1 + span(s.rest[1:], isName)
	if n == 1 || isDigit(s.rest[1]) || s.inside() == 's' {
		return symbol, 1, nil
	}
	return param, n, nil
}

// track keeps account of brackets.
func (s *scanner) track(piece string) {
	switch piece {
	case "(":
		s.within = append(s.within, '(')
	case "[":
		open := byte('s')
		if s.last == "ARRAY" || s.inside() == 'a' && (s.last == "[" || s.last == ",") {
			open = 'a'
		}
		s.within = append(s.within, open)
	case ")", "]":
		if len(s.within) > 0 {
			s.within = s.within[:len(s.within)-1]
		}
	}
}

func (s *scanner) inside() byte {
	if len(s.within) == 0 {
		return 0
	}
	return s.within[len(s.within)-1]
}

func span(s string, is func(byte) bool) int {
	n := 0
	for n < len(s) && is(s[n]) {
		n++
	}
	return n
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isName(c byte) bool {
	return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' || c == '$' || c >= 0x80
}
