package steps

import (
	"strings"
	"testing"

	"quorate/jobs"
)

func TestParametersAreToldFromOtherColons(t *testing.T) {
	pg, my, lite := postgresDialect, mysqlDialect, sqliteDialect
	for _, c := range []struct {
		d        *dialect
		sql, out string
	}{
		{pg, "SELECT :due", "SELECT $1::timestamptz"},
		{pg, "SELECT :due, :job, :due", "SELECT $1::timestamptz, $2::text, $1::timestamptz"},
		{pg, "SELECT :due::date", "SELECT $1::timestamptz::date"},
		{pg, "SELECT x::job", "SELECT x::job"},
		{pg, "SELECT ':job', \":job\", E'\\':job', e'it''s\\' :job'", ""},
		{pg, "SELECT 'a\\', :job", "SELECT 'a\\', $1::text"},
		{pg, "SELECT E'a''\\'' || :job", "SELECT E'a''\\'' || $1::text"},
		{pg, "SELECT TYPE'a\\' || :job", "SELECT TYPE'a\\' || $1::text"},
		{pg, "SELECT $$ :job; COMMIT $$, $x$ :job $$ $x$", ""},
		{pg, "SELECT a$b$, :job, c$b$", "SELECT a$b$, $1::text, c$b$"},
		{pg, "SELECT 1 -- :job ;\n, :job", "SELECT 1 -- :job ;\n, $1::text"},
		{pg, "SELECT 1 /* :job /* ' */ ; */, :job", "SELECT 1 /* :job /* ' */ ; */, $1::text"},
		{pg, "SELECT a[1:2], a[:n], a[lo:hi], a[(:attempt):2]", "SELECT a[1:2], a[:n], a[lo:hi], a[($1::integer):2]"},
		{pg, "SELECT ARRAY[:attempt, :attempt], array[[1], [:attempt]]", "SELECT ARRAY[$1::integer, $1::integer], array[[1], [$1::integer]]"},
		{pg, "SELECT f(b := :attempt), g(c => :attempt)", "SELECT f(b := $1::integer), g(c => $1::integer)"},
		{pg, "SELECT data ? 'x', data ->> '$.a'", ""},
		{pg, "SELECT 5--3", ""},
		{pg, "SELECT 1 ; -- done", "SELECT 1  -- done"},
		{pg, "( SELECT 1 )", ""},
		{my, "SELECT :job, :job, 'it\\'s :job', \"\\\":job\", `:job`", "SELECT ?, ?, 'it\\'s :job', \"\\\":job\", `:job`"},
		{my, "SELECT 'a''b\\'' , :job", "SELECT 'a''b\\'' , ?"},
		{my, "SELECT 5--3, :job # :job\n", "SELECT 5--3, ? # :job"},
		{my, "SELECT 1 -- :job\n, :job", "SELECT 1 -- :job\n, ?"},
		{my, "SELECT @x := :attempt, '@?'", "SELECT @x := ?, '@?'"},
		{my, "SELECT 1 /* /* :job */, :job", "SELECT 1 /* /* :job */, ?"},
		{lite, "SELECT [:job], `:job`, 'a\\', :job", "SELECT [:job], `:job`, 'a\\', ?"},
		{lite, "SELECT '?', \"@x\", :run_id", "SELECT '?', \"@x\", ?"},
	} {
		st, err := c.d.parse(c.sql, false)
		if c.out == "" {
			c.out = c.sql
		}
		if err != nil || st.text != c.out {
			t.Errorf("%s: %s\n got %q, %v\nwant %q", c.d.name, c.sql, st.text, err, c.out)
		}
	}
}

func TestStatementsThatCannotBeOursAreRefused(t *testing.T) {
	for sql, wrong := range map[string]string{
		"SELECT :nosuch":                         "parameter :nosuch",
		"SELECT 1; SELECT 2":                     "several statements",
		"SELECT 1; /* and */ DROP TABLE t":       "several statements",
		"BEGIN":                                  "one transaction already",
		" -- so\n commit":                        "one transaction already",
		"/* x */ ROLLBACK TO a":                  "one transaction already",
		"SAVEPOINT x":                            "one transaction already",
		"vacuum full t":                          "cannot live in a transaction",
		"create unique index concurrently on t ": "cannot live in a transaction",
		"DROP INDEX CONCURRENTLY i":              "cannot live in a transaction",
		"":                                       "not a statement",
		" ; ":                                    "not a statement",
		"-- nothing":                             "not a statement",
		"SELECT 'open":                           "not closed",
		"SELECT 1 /* open":                       "not closed",
		"SELECT 1\x00":                           "zero byte",
	} {
		if err := CheckSQL(jobs.Step{SQL: jobs.Strings{sql}}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v, want %q", sql, err, wrong)
		}
	}
	for sql, d := range map[string]*dialect{
		"SELECT $1": postgresDialect, "SELECT ?": mysqlDialect, "SELECT ?1": sqliteDialect, "SELECT @due": sqliteDialect, "SELECT $due": sqliteDialect,
	} {
		if _, err := d.parse(sql, false); err == nil || !strings.Contains(err.Error(), "placeholder") {
			t.Errorf("%s: %q: %v", d.name, sql, err)
		}
	}
}

// FuzzStatement: whatever is written, all of it but parameters and the last ; comes
// out as it was, and what stands in quotes is never touched.
func FuzzStatement(f *testing.F) {
	for _, seed := range []string{"SELECT :due::date, ':job' /* x */ -- y\n;", "SELECT $a$ :job $a$, E'\\'', a[1:2], [x], `y`, \"z\" # n", "x:=:job;:", "$$", "-", "/", "--", "E'"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		for _, d := range []*dialect{postgresDialect, mysqlDialect, sqliteDialect} {
			var whole strings.Builder
			for s := (scanner{d: d, rest: sql}); s.rest != ""; {
				_, piece, err := s.next()
				if err != nil {
					break
				}
				if piece == "" {
					t.Fatalf("%s: stands still at %q", d.name, s.rest)
				}
				whole.WriteString(piece)
			}
			if !strings.HasPrefix(sql, whole.String()) {
				t.Fatalf("%s: %q became %q", d.name, sql, whole.String())
			}
			inside := strings.ReplaceAll(sql, "'", "''")
			if !strings.ContainsAny(inside, "\\\x00") {
				st, err := d.parse("SELECT '"+inside+"', :job", false)
				if err != nil || !strings.HasPrefix(st.text, "SELECT '"+inside+"', ") || len(st.params) != 1 {
					t.Fatalf("%s: quoted %q came out as %q, %v", d.name, inside, st.text, err)
				}
			}
			d.parse(sql, false)
		}
	})
}

func TestCaptureKeepsBothEnds(t *testing.T) {
	for _, chunk := range []int{1, 7, 1000, half - 1, half, half + 1, maxOutput, 3*maxOutput + 5} {
		for _, size := range []int{0, 10, half, maxOutput - 1, maxOutput, maxOutput + 1, maxOutput + half + 3, 4*maxOutput + 1} {
			all := make([]byte, size)
			for i := range all {
				all[i] = byte('a' + i%23)
			}
			var c capture
			for rest := all; len(rest) > 0; {
				n, err := c.Write(rest[:min(chunk, len(rest))])
				if err != nil || n == 0 {
					t.Fatal(n, err)
				}
				rest = rest[n:]
			}
			got := c.String()
			if size <= maxOutput {
				if got != string(all) {
					t.Errorf("chunk %d size %d: changed", chunk, size)
				}
				continue
			}
			if !strings.HasPrefix(got, string(all[:half])+"\n[... ") || !strings.HasSuffix(got, " bytes cut ...]\n"+string(all[size-half:])) {
				t.Errorf("chunk %d size %d: %d bytes kept, ends differ", chunk, size, len(got))
			}
		}
	}
}
