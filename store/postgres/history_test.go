package postgres_test

import (
	"testing"

	"quorate/store/storetest"
)

func TestHistoryIsAsDocumented(t *testing.T) {
	s, conn := beneath(t)
	run(t, conn, `SET search_path = quorate`)
	views := []string{"history", "lock_evidence", "missed", "job_health"}
	storetest.History(t, s, views, func(query string) (columns []string, n int, err error) {
		rows, err := conn.Query(t.Context(), query)
		if err != nil {
			return nil, 0, err
		}
		for _, field := range rows.FieldDescriptions() {
			columns = append(columns, field.Name)
		}
		for rows.Next() {
			n++
		}
		return columns, n, rows.Err()
	})
	health := `SELECT failure_streak FROM job_health WHERE job = 'billing' AND last_success IS NULL`
	if n := value[int](t, conn, health); n != 1 {
		t.Errorf("billing failed %d times in a row, want 1", n)
	}
}
