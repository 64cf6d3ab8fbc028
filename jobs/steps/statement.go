package steps

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quorate/jobs"
)

// A parameter is a value that a statement may name as :name. The cast gives it its
// type on Postgres, which otherwise guesses from where it stands.
type parameter struct{ name, cast string }

var parameters = []parameter{
	{"due", "timestamptz"}, {"run_id", "bigint"}, {"fence", "bigint"},
	{"job", "text"}, {"attempt", "integer"}, {"replica", "text"},
}

const parameterNames = ":due, :run_id, :fence, :job, :attempt and :replica"

// A statement is one SQL statement in the words of its target.
type statement struct {
	text      string
	params    []string // which value each placeholder stands for
	returning bool     // it changes rows and returns them
}

// A dialect is what must be known of a kind of target to read its SQL.
type dialect struct {
	name      string
	numbered  bool   // placeholders are $1::type, each value once; else ?
	backslash bool   // in '…' and "…" a backslash takes the next character with it
	estrings  bool   // the same in E'…' alone; and $tag$…$tag$ quotes
	hash      bool   // # begins a comment, and -- only with a space behind it
	nested    bool   // comments nest
	brackets  bool   // [name] quotes a name; elsewhere it is a subscript
	reserved  string // characters that begin a placeholder of the target's own

	// refuse says what no step of such a target may say, and alone what only one may
	// that has no transaction.
	refuse func(words []string) string
	alone  func(words []string) string
}

// CheckSQL says what is wrong with an SQL step whatever its target: a parameter that
// does not exist, several statements in one, a statement that cannot live in a
// transaction. [Targets.CheckStep] knows the target and finds more.
func CheckSQL(step jobs.Step) error {
	var first error
	for _, d := range []*dialect{postgresDialect, mysqlDialect, sqliteDialect} {
		_, err := d.parseAll(step)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// parseAll reads the statements of a step.
func (d *dialect) parseAll(step jobs.Step) ([]statement, error) {
	all := make([]statement, len(step.SQL))
	for i, sql := range step.SQL {
		var err error
		all[i], err = d.parse(sql, step.Loose(), declared(step)...)
		if err != nil && len(step.SQL) > 1 {
			err = fmt.Errorf("statement %d of %d: %w", i+1, len(step.SQL), err)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// parse reads one statement: it refuses what cannot be run as a part of our
// transaction, unless it is loose from any, and turns :name into the target's
// placeholders; more are those of the job. All else is left as it was written.
func (d *dialect) parse(sql string, loose bool, more ...parameter) (statement, error) {
	if strings.IndexByte(sql, 0) >= 0 {
		return statement{}, errors.New("contains a zero byte")
	}
	var out strings.Builder
	var st statement
	var words []string
	ended := false
	for s := (scanner{d: d, rest: sql}); s.rest != ""; {
		kind, piece, err := s.next()
		if err != nil {
			return statement{}, err
		}
		if kind != blank && ended {
			return statement{}, errors.New("has several statements in one: write sql = [\"…\", \"…\"], they share one transaction")
		}
		switch {
		case kind == symbol && piece == ";":
			ended = true
			continue
		case kind == symbol && strings.Contains(d.reserved, piece):
			return statement{}, fmt.Errorf("%q would be a placeholder on %s: name the value instead, %s", piece, d.name, parameterNames)
		case kind == param:
			if piece, err = st.place(d, piece[1:], more); err != nil {
				return statement{}, err
			}
		case kind == word:
			words = append(words, strings.ToUpper(piece))
		}
		out.WriteString(piece)
	}
	if len(words) == 0 {
		return statement{}, errors.New("is not a statement")
	}
	if err := d.judge(words, loose); err != nil {
		return statement{}, err
	}
	st.returning = words[0] != "SELECT" && slices.Contains(words, "RETURNING")
	st.text = strings.TrimSpace(out.String())
	return st, nil
}

// place returns the placeholder for a value, and notes that it stands there.
func (s *statement) place(d *dialect, name string, more []parameter) (string, error) {
	for _, p := range slices.Concat(parameters, more) {
		if p.name != name {
			continue
		}
		if !d.numbered {
			s.params = append(s.params, name)
			return "?", nil
		}
		for i, known := range s.params {
			if known == name {
				return fmt.Sprintf("$%d::%s", i+1, p.cast), nil
			}
		}
		s.params = append(s.params, name)
		return fmt.Sprintf("$%d::%s", len(s.params), p.cast), nil
	}
	names := parameterNames
	for _, p := range more {
		names += ", :" + p.name
	}
	return "", fmt.Errorf("has a parameter :%s that there is not: there are %s", name, names)
}

// declared are the parameters of the step's job.
func declared(step jobs.Step) (list []parameter) {
	casts := map[jobs.ParamType]string{
		jobs.ParamString: "text", jobs.ParamEnum: "text", jobs.ParamInt: "bigint",
		jobs.ParamFloat: "double precision", jobs.ParamBool: "boolean", jobs.ParamTime: "timestamptz",
	}
	for _, name := range slices.Sorted(maps.Keys(step.Params())) {
		list = append(list, parameter{name, casts[step.Params()[name].Type]})
	}
	return list
}

func (d *dialect) judge(words []string, loose bool) error {
	rules := []func([]string) string{refuse, d.refuse}
	if !loose {
		rules = append(rules, alone, d.alone)
	}
	for _, rule := range rules {
		if why := rule(words); why != "" {
			return errors.New(why)
		}
	}
	return nil
}

// refuse names statements that are no step's to say.
func refuse(words []string) string {
	switch words[0] {
	case "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE":
		return words[0] + " is not for a step to say: each step is one transaction already"
	}
	return ""
}

// alone names statements that no target can run within a transaction.
func alone(words []string) string {
	switch words[0] {
	case "VACUUM":
		return cannot("VACUUM")
	case "CREATE", "DROP", "REINDEX", "ALTER":
		for i, w := range words {
			if w == "CONCURRENTLY" && i < 8 && (words[0] != "ALTER" || words[1] == "TABLE") {
				return cannot(words[0] + " … CONCURRENTLY")
			}
		}
	}
	return ""
}

const without = "with transactional = false it runs without a fence, as a command does"

func cannot(what string) string {
	return what + " cannot live in a transaction, and so not behind the fence: " + without
}

var postgresDialect = &dialect{
	name: "Postgres", numbered: true, estrings: true, nested: true, reserved: "$",
	refuse: func(words []string) string {
		switch words[0] {
		case "PREPARE", "EXECUTE", "DEALLOCATE":
			return words[0] + " is refused: write the statement itself"
		case "COPY":
			if slices.Contains(words, "STDIN") || slices.Contains(words, "STDOUT") {
				return "COPY to and from the client has nobody at this end: use INSERT … SELECT, or psql as a command step"
			}
		}
		return ""
	},
	alone: func(words []string) string {
		second := ""
		if len(words) > 1 {
			second = words[1]
		}
		switch words[0] {
		case "CREATE", "DROP", "ALTER":
			switch second {
			case "DATABASE", "TABLESPACE", "SYSTEM", "SUBSCRIPTION":
				return cannot(words[0] + " " + second)
			}
		case "REINDEX":
			if second == "DATABASE" || second == "SYSTEM" {
				return cannot(words[0] + " " + second)
			}
		}
		return ""
	},
}

// MySQL commits the transaction before and after a statement that it cannot roll
// back, and says nothing. So here only those are let through that it can.
var mysqlDialect = &dialect{
	name: "MySQL", backslash: true, hash: true, reserved: "?",
	refuse: func(words []string) string {
		switch words[0] {
		case "SET":
			return "SET can change the session's transactions: use SELECT … INTO @name"
		case "XA":
			return "XA is not for a step to say: each step is one transaction already"
		}
		return ""
	},
	alone: func(words []string) string {
		switch words[0] {
		case "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "CALL", "DO", "LOAD":
			return ""
		case "CREATE", "DROP":
			if len(words) > 1 && words[1] == "TEMPORARY" {
				return ""
			}
		}
		return words[0] + " commits by itself on MySQL and MariaDB, and so not behind the fence: " + without
	},
}

var sqliteDialect = &dialect{
	name: "SQLite", brackets: true, reserved: "?@$",
	refuse: func([]string) string { return "" },
	alone: func(words []string) string {
		switch words[0] {
		case "PRAGMA", "ATTACH", "DETACH":
			return cannot(words[0])
		}
		return ""
	},
}
