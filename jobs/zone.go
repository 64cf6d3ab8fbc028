package jobs

import (
	"archive/zip"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// zoneFile is the time zone database of IANA, as Go has it in lib/time. It is the
// only one that we read: replicas must agree, and those of their machines are of
// any age. To renew it, copy that of a new Go.
//
//go:embed zoneinfo.zip
var zoneFile string

// zones is what the file holds, by name. A zone is read when it is asked for.
var zones = sync.OnceValue(func() map[string]func() (*zone, error) {
	all := map[string]func() (*zone, error){}
	file, err := zip.NewReader(strings.NewReader(zoneFile), int64(len(zoneFile)))
	if err != nil {
		return all
	}
	for _, f := range file.File {
		if !f.FileInfo().IsDir() {
			all[f.Name] = sync.OnceValues(func() (*zone, error) { return readZone(f) })
		}
	}
	return all
})

func readZone(f *zip.File) (*zone, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocationFromTZData(f.Name, data)
	if err != nil {
		return nil, err
	}
	return newZone(location), nil
}

// loadZone returns a zone by its IANA name. No name is UTC.
func loadZone(name string) (*zone, error) {
	if name == "" {
		name = "UTC"
	}
	if name == "Local" {
		return nil, fmt.Errorf("timezone \"Local\" differs between replicas: name the zone, like \"Europe/Berlin\"")
	}
	load, ok := zones()[name]
	if !ok {
		hint := "use an IANA name like \"Europe/Berlin\", or \"UTC\""
		if near := Nearest(name, slices.Sorted(maps.Keys(zones()))); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return nil, fmt.Errorf("timezone %q is not known: %s", name, hint)
	}
	return load()
}

// A zone is a time zone, and its spans in the years that are asked about.
type zone struct {
	*time.Location
	spans []span
}

// A span is a stretch of time in which a zone's offset does not change.
type span struct {
	start, end time.Time     // zero: unbounded
	offset     time.Duration // from UTC
	shift      time.Duration // offset less that of the span before: > 0 opened a gap, < 0 a fold
}

// newZone goes from each change of the clock to the next. What the time package says
// about where a span began is not to be trusted: behind the last change that a
// zone's table has, it follows the zone's rule, as if that had always been there.
func newZone(location *time.Location) *zone {
	z := &zone{Location: location}
	until := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	for t := firstYear.AddDate(-1, 0, 0); !t.IsZero() && t.Before(until); {
		s := z.findSpan(t)
		if n := len(z.spans); n > 0 {
			s.start, s.shift = t, s.offset-z.spans[n-1].offset
			if s.shift == 0 {
				z.spans[n-1].end = s.end
				t = s.end
				continue
			}
		}
		z.spans = append(z.spans, s)
		t = s.end
	}
	return z
}

// spanAt returns the span that an instant is in.
func (z *zone) spanAt(t time.Time) span {
	i := sort.Search(len(z.spans), func(i int) bool { return z.spans[i].start.After(t) }) - 1
	if i >= 0 && (z.spans[i].end.IsZero() || t.Before(z.spans[i].end)) {
		return z.spans[i]
	}
	return z.findSpan(t)
}

func (z *zone) findSpan(t time.Time) span {
	local := t.In(z.Location)
	start, end := local.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// On 31 December of a leap year, where a zone's rule goes beyond its table,
		// ZoneBounds ends the span a day too early.
		end = t.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	}
	_, sec := local.Zone()
	s := span{start, end, time.Duration(sec) * time.Second, 0}
	if !start.IsZero() {
		_, before := start.Add(-time.Second).Zone()
		s.shift = s.offset - time.Duration(before)*time.Second
	}
	return s
}

// wall is what the clock on the wall shows, with UTC standing for no zone at all.
func (s span) wall(t time.Time) time.Time { return t.UTC().Add(s.offset) }
func (s span) real(w time.Time) time.Time { return w.Add(-s.offset) }
