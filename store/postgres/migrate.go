package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"quorate/migrations"
	"quorate/store"
)

// Migrate applies what is due, each file in a transaction that is alone among all
// processes, and makes the partitions of the months to come.
func (s *Store) Migrate(ctx context.Context) error {
	files, err := migrations.Files("postgres")
	if err != nil {
		return err
	}
	for due := true; due; {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			due, err = step(ctx, tx, files)
			return err
		})
		if err != nil {
			return s.fault(ctx, err)
		}
	}
	_, err = s.pool.Exec(ctx, `SELECT quorate.make_months()`)
	return s.fault(ctx, err)
}

// step applies the next file, if one is due.
func step(ctx context.Context, tx pgx.Tx, files []migrations.File) (due bool, err error) {
	// As long as it takes: others may be at it, and a file may rewrite a table.
	_, err = tx.Exec(ctx, `
		SET LOCAL lock_timeout = 0;
		SET LOCAL statement_timeout = 0;
		SELECT pg_advisory_xact_lock(8173254060);
		CREATE SCHEMA IF NOT EXISTS quorate;
		CREATE TABLE IF NOT EXISTS quorate.migrations (
			number   integer PRIMARY KEY,
			name     text NOT NULL,
			checksum text NOT NULL,
			applied  timestamptz NOT NULL DEFAULT now()
		);`)
	if err != nil {
		return false, err
	}
	rows, _ := tx.Query(ctx, marks)
	applied, err := pgx.CollectRows(rows, pgx.RowToStructByPos[migrations.Mark])
	if err != nil {
		return false, err
	}
	next, err := migrations.Next(files, applied)
	if err != nil || next == nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, next.SQL); err != nil {
		return false, fmt.Errorf("migration %s%s: %w", next.Name, line(next.SQL, err), err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO quorate.migrations (number, name, checksum) VALUES ($1, $2, $3)`,
		next.Number, next.Name, next.Checksum)
	return true, err
}

// line says in which line of a file the server found its error.
func line(sql string, err error) string {
	var answer *pgconn.PgError
	text := []rune(sql)
	if !errors.As(err, &answer) || answer.Position < 1 || int(answer.Position) > len(text) {
		return ""
	}
	return fmt.Sprintf(", line %d", 1+strings.Count(string(text[:answer.Position-1]), "\n"))
}

const marks = `SELECT number, name, checksum FROM quorate.migrations ORDER BY number`

// Status reads and changes nothing; a database without our schema has applied
// none.
func (s *Store) Status(ctx context.Context) (store.MigrationStatus, error) {
	files, err := migrations.Files("postgres")
	if err != nil {
		return store.MigrationStatus{}, err
	}
	status := store.MigrationStatus{Known: len(files)}
	there, err := one(ctx, s, pgx.RowTo[bool], `SELECT to_regclass('quorate.migrations') IS NOT NULL`)
	if err != nil || !there {
		return status, err
	}
	status.Applied, err = one(ctx, s, pgx.RowTo[int], `SELECT coalesce(max(number), 0) FROM quorate.migrations`)
	return status, err
}
