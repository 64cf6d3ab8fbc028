package steps

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// transactionless says which tables that a statement may change have an engine of
// MySQL's that cannot roll back: MyISAM, Aria, MEMORY and others. What a procedure
// or a trigger changes is found out only when it is to be rolled back.
func (t *mysqlTx) transactionless(ctx context.Context, statement string) error {
	names := changed(statement)
	if len(names) == 0 {
		return nil
	}
	marks, args := strings.Repeat(", ?", len(names)), make([]any, 0, 2*len(names))
	for range 2 { // the tables' names, and the names of databases before them
		for _, name := range names {
			args = append(args, name)
		}
	}
	var table, engine string
	err := t.conn.QueryRowContext(ctx, `SELECT t.table_name, t.engine FROM information_schema.tables t
		JOIN information_schema.engines e ON e.engine = t.engine
		WHERE e.transactions <> 'YES' AND t.table_name IN (''`+marks+`) AND t.table_schema IN (database()`+marks+`)
		LIMIT 1`, args...).Scan(&table, &engine)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("table %s is of engine %s, which cannot roll back: ALTER TABLE %s ENGINE = InnoDB; or %s", table, engine, table, without)
}

// changed returns the names in a statement among which are those of the tables that
// it changes: all until where it says what to change.
func changed(statement string) (names []string) {
	var ends []string
	for s := (scanner{d: mysqlDialect, rest: statement}); s.rest != ""; {
		kind, piece, err := s.next()
		upper := strings.ToUpper(piece)
		switch {
		case err != nil || slices.Contains(ends, upper):
			return names
		case kind != word && kind != quoted:
			continue
		case len(names) == 0:
			switch upper {
			case "INSERT", "REPLACE":
				ends = []string{"(", "VALUES", "VALUE", "SELECT", "SET", "TABLE"}
			case "UPDATE":
				ends = []string{"SET"}
			case "DELETE":
				ends = []string{"WHERE"}
			case "LOAD", "WITH":
			default:
				return nil
			}
		}
		names = append(names, strings.Trim(piece, "`\""))
	}
	return names
}
