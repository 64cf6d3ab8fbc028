package sqlite_test

import (
	"path/filepath"
	"sync"
	"testing"

	"quorate/store/sqlite"
)

// Who opens a new file first turns it into one with a write-ahead log, for which
// SQLite lets nobody wait.
func TestManyOpenANewFileAtOnce(t *testing.T) {
	for range 200 {
		path := filepath.Join(t.TempDir(), "quorate.db")
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				s, err := sqlite.Open(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				s.Close()
			})
		}
		wait.Wait()
	}
}
