package migrations

import (
	"strings"
	"testing"
)

func TestTheFilesOfEachBodyAreNumberedWithoutGaps(t *testing.T) {
	for _, body := range []string{"postgres", "sqlite"} {
		files, err := Files(body)
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d files, %v", body, len(files), err)
		}
	}
	if _, err := Files("oracle"); err == nil {
		t.Error("there are migrations for oracle")
	}
}

func TestAGapOrADuplicateIsAnErrorThatNamesTheFile(t *testing.T) {
	for _, names := range [][]string{
		{"0001_a.sql", "0003_c.sql"}, {"0001_a.sql", "0001_b.sql"}, {"0002_b.sql"}, {"0000_a.sql"}, {"a.sql"}, {"0001_a.sql", "b_0002.sql"},
	} {
		var list []File
		for _, name := range names {
			list = append(list, file(name, ""))
		}
		if err := check(list); err == nil || !strings.Contains(err.Error(), names[len(names)-1]) {
			t.Errorf("%v: %v", names, err)
		}
	}
}

func TestNextIsTheFirstFileThatWasNotApplied(t *testing.T) {
	known := []File{file("0001_a.sql", "a"), file("0002_b.sql", "b")}
	mark := func(f File) Mark { return Mark{f.Number, f.Name, f.Checksum} }
	a, b := mark(known[0]), mark(known[1])
	for _, c := range []struct {
		applied []Mark
		next    string // the file, or "" for none
		err     string
	}{
		{nil, "0001_a.sql", ""},
		{[]Mark{a}, "0002_b.sql", ""},
		{[]Mark{a, b}, "", ""},
		{[]Mark{a, b, {3, "0003_c.sql", "x"}}, "", "newer than this binary: it has migration 0003_c.sql"},
		{[]Mark{mark(file("0001_a.sql", "changed"))}, "", "0001_a.sql was changed"},
		{[]Mark{b}, "", "0002_b.sql where number 1 belongs"},
	} {
		next, err := Next(known, c.applied)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: got the error %v, want %q", c.applied, err, c.err)
			}
		case err != nil:
			t.Errorf("%v: %v", c.applied, err)
		case (next == nil) != (c.next == "") || next != nil && next.Name != c.next:
			t.Errorf("%v: next is %v, want %q", c.applied, next, c.next)
		}
	}
}

func TestTargetsHaveTheTwoGuardTables(t *testing.T) {
	for _, dialect := range []string{"postgres", "mysql", "sqlite"} {
		text, err := Target(dialect)
		if err != nil || !strings.Contains(text, "quorate_fence") || !strings.Contains(text, "quorate_effect") {
			t.Errorf("%s: %v", dialect, err)
		}
	}
	if _, err := Target("../postgres/0001_runs"); err == nil {
		t.Error("a path is taken for a dialect")
	}
}
