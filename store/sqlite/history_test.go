package sqlite_test

import (
	"path/filepath"
	"testing"

	"quorate/store/storetest"
)

func TestHistoryIsAsDocumented(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quorate.db")
	s, db := opened(t, path), raw(t, path)
	views := []string{"history", "lock_evidence", "missed"}
	storetest.History(t, s, views, func(query string) (columns []string, n int, err error) {
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			return nil, 0, err
		}
		defer rows.Close()
		if columns, err = rows.Columns(); err != nil {
			return nil, 0, err
		}
		for rows.Next() {
			n++
		}
		return columns, n, rows.Err()
	})
}
