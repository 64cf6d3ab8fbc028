package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"quorate/migrations"
	"quorate/store"
)

// Migrate applies what is due, each file in a turn of its own.
func (s *Store) Migrate(ctx context.Context) error {
	files, err := migrations.Files("sqlite")
	if err != nil {
		return err
	}
	for due := true; due; {
		err := s.turn(ctx, func(tx *sql.Tx, now time.Time) (err error) {
			due, err = step(ctx, tx, now, files)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// step applies the next file, if one is due.
func step(ctx context.Context, tx *sql.Tx, now time.Time, files []migrations.File) (due bool, err error) {
	_, err = tx.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS migrations (
			number   INTEGER PRIMARY KEY,
			name     TEXT NOT NULL,
			checksum TEXT NOT NULL,
			applied  TEXT NOT NULL
		) STRICT`)
	if err != nil {
		return false, err
	}
	applied, err := many(ctx, tx, func(rows *sql.Rows) (m migrations.Mark, err error) {
		err = rows.Scan(&m.Number, &m.Name, &m.Checksum)
		return m, err
	}, `SELECT number, name, checksum FROM migrations ORDER BY number`)
	if err != nil {
		return false, err
	}
	next, err := migrations.Next(files, applied)
	if err != nil || next == nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, next.SQL); err != nil {
		return false, fmt.Errorf("migration %s: %w", next.Name, err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO migrations (number, name, checksum, applied) VALUES (?, ?, ?, ?)`,
		next.Number, next.Name, next.Checksum, instant(now))
	return true, err
}

// Status reads and changes nothing; a file without our tables has applied none.
func (s *Store) Status(ctx context.Context) (store.MigrationStatus, error) {
	files, err := migrations.Files("sqlite")
	if err != nil {
		return store.MigrationStatus{}, err
	}
	status := store.MigrationStatus{Known: len(files)}
	there, err := many(ctx, s.read, scanOne[int], `SELECT 1 FROM sqlite_schema WHERE name = 'migrations'`)
	if err != nil || len(there) == 0 {
		return status, s.fault(ctx, err)
	}
	newest, err := many(ctx, s.read, scanOne[int], `SELECT coalesce(max(number), 0) FROM migrations`)
	if err != nil {
		return status, s.fault(ctx, err)
	}
	status.Applied = newest[0]
	return status, nil
}
