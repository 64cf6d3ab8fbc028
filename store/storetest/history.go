package storetest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
)

// History proves docs/HISTORY.md: its views have the columns that it lists, in
// that order, and each of its queries has an answer. The body says what columns a
// query gives, and how many rows.
func History(t *testing.T, s store.Store, views []string, ask func(query string) (columns []string, rows int, err error)) {
	t.Helper()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	past(t, s)
	text, err := os.ReadFile("../../docs/HISTORY.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, view := range views {
		columns, _, err := ask("SELECT * FROM " + view)
		if documented := columnsOf(string(text), view); err != nil || !slices.Equal(columns, documented) {
			t.Errorf("view %s has the columns %v (%v), and documented are %v", view, columns, err, documented)
		}
	}
	queries := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(queries) < 5 {
		t.Fatalf("%d queries are documented, want five at least", len(queries))
	}
	for _, q := range queries {
		if _, rows, err := ask(q[1]); err != nil || rows == 0 {
			t.Errorf("%d rows (%v) answer\n%s", rows, err, q[1])
		}
	}
}

// columnsOf reads the first column of the table beneath a view's heading.
func columnsOf(text, view string) (columns []string) {
	_, section, _ := strings.Cut(text, "\n## "+view)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(section, -1) {
		columns = append(columns, row[1])
	}
	return columns
}

// past is a store with something of everything.
func past(t *testing.T, s store.Store) {
	t.Helper()
	run := granted(t, s, want(tick("restock", 0)))
	finished(t, s, run, jobs.Outcome{Status: jobs.Succeeded, Evidence: jobs.Evidence{Lowest: 20 * time.Millisecond}})
	finished(t, s, granted(t, s, want(tick("billing", 0))), jobs.Outcome{Status: jobs.Failed, Reason: jobs.ReasonStep, Error: "x"})
	granted(t, s, want(tick("billing", 1)))
	recorded(t, s, ended("report", 0, jobs.Missed, jobs.ReasonNoQuorum), ended("report", 1, jobs.Skipped, jobs.ReasonOverlap))
}
