package postgres_test

import (
	"testing"

	"quorate/internal/testenv"
	"quorate/store"
	"quorate/store/postgres"
	"quorate/store/storetest"
)

func open(t testing.TB) store.Store { return opened(t, testenv.Postgres(t)) }

func opened(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestStore(t *testing.T) { storetest.Run(t, open) }
