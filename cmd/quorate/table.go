package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"quorate/jobs"
)

// A table is text in columns. The last column is as wide as it likes.
type table struct {
	out    io.Writer
	colour bool
	rows   [][]string
}

func newTable(out io.Writer, head ...string) *table {
	return &table{out: out, colour: isTerminal(out), rows: [][]string{head}}
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print() {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range t.rows {
		line := padded(row, widths)
		if n == 0 {
			line = paint(t.colour, faint, line)
		}
		fmt.Fprintln(t.out, line)
	}
}

// padded puts cells into columns of these widths, two spaces apart. Control
// characters, which an output or an error may hold, are made visible.
func padded(cells []string, widths []int) string {
	var line strings.Builder
	for i, cell := range cells {
		cell = oneLine(cell)
		line.WriteString(cell)
		if i < len(cells)-1 {
			line.WriteString(strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))+2))
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// oneLine keeps text from breaking out of its line or of its colour.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r == 0x7f || 0x80 <= r && r <= 0x9f:
			return utf8.RuneError
		}
		return r
	}, s)
}

const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func paint(on bool, code, text string) string {
	if !on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// statusColour is the colour that a status has everywhere.
func statusColour(s jobs.Status) string {
	switch s {
	case jobs.Succeeded:
		return green
	case jobs.Failed, jobs.Unknown:
		return red
	case jobs.Skipped, jobs.Missed:
		return yellow
	}
	return bold
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// short prints a duration with the digits that a person reads.
func short(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return jobs.Duration(d.Round(time.Second)).String()
	case d >= time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// ending is a status with its reason: failed (timeout).
func ending(status, reason string) string {
	if reason == "" {
		return status
	}
	return status + " (" + reason + ")"
}
