package sqlite_test

import (
	"path/filepath"
	"testing"

	"quorate/store"
	"quorate/store/sqlite"
	"quorate/store/storetest"
)

func open(t testing.TB) store.Store {
	return opened(t, filepath.Join(t.TempDir(), "quorate.db"))
}

func opened(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestStore(t *testing.T) { storetest.Run(t, open) }
