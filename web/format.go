package web

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// pageFuncs say times and numbers as people read them. pages/app.js says relative
// times in the same words.
var pageFuncs = template.FuncMap{
	"stamp":    stamp,
	"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"millis":   func(t time.Time) int64 { return t.UnixMilli() },
	"relative": relative,
	"took":     took,
	"seconds":  func(ms int64) string { return brief(time.Duration(ms) * time.Millisecond) },
	"millisec": func(ms float64) string { return fmt.Sprintf("%.2g ms", ms) },
	"words":    func(s string) string { return strings.ReplaceAll(s, "_", " ") },
	"short":    func(s string) string { return s[:min(len(s), 8)] },
	"share":    share,
	"votes":    votes,
	"deref":    func(t *time.Time) time.Time { return *t },
}

// stamp is a time of UTC, without the year while that is this one.
func stamp(t time.Time) string {
	t = t.UTC()
	if t.Year() != time.Now().UTC().Year() {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("2 Jan 15:04:05")
}

func relative(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return "in " + coarse(d)
	} else if d > -time.Second {
		return "now"
	} else {
		return coarse(-d) + " ago"
	}
}

// coarse rounds to the one or two units that matter.
func coarse(d time.Duration) string {
	s := int64((d + time.Second - 1) / time.Second)
	switch {
	case s < 120:
		return fmt.Sprintf("%d s", s)
	case s < 2*3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d days", s/86400)
}

// brief says a duration with two or three digits.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return coarse(d)
}

func took(from, to *time.Time) string {
	if from == nil || to == nil {
		return ""
	}
	return brief(to.Sub(*from))
}

// share is part of whole as a length between 0 and width.
func share(part, whole int64, width int) int {
	if whole <= 0 {
		return 0
	}
	return int(max(0, min(int64(width), part*int64(width)/whole)))
}

// A ballot is the votes of a lease, drawn: a pip for each master.
type ballot struct {
	Width int
	Pips  []pip
}

type pip struct {
	X     int
	Given bool
}

func votes(e *Evidence) ballot {
	var b ballot
	for i := range min(e.Masters, 15) {
		b.Pips = append(b.Pips, pip{b.Width, i < e.Votes})
		b.Width += 7
	}
	return b
}
