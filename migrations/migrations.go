// Package migrations holds the SQL of every database that we keep something in,
// and the rules by which it is applied.
//
// postgres/ and sqlite/ are the two bodies of the store: numbered files, applied
// in order, forward only. A body applies them like this, and any number of
// processes may do so at once:
//
//	begin, alone among all processes (an advisory lock, or BEGIN IMMEDIATE)
//	read the marks: what was applied, with its checksum
//	Next(files, marks): the one file that is due, or the mistake that was found
//	run it, mark it, commit; begin again until nothing is due
//
// So each file is one transaction together with its mark, and a process that dies
// leaves either both or neither.
//
// target/ is what an SQL step keeps in its target: the fence and the marker of
// each effect. These two tables are created by whoever owns the target (quorate
// migrate --target prints them), and never change shape.
//
// What may live here: SQL files and the order in which they apply. What may not:
// a driver. Never edit a file that was released: add the next number.
package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"
)

//go:embed postgres/*.sql sqlite/*.sql target/*.sql
var files embed.FS

// A File is one migration.
type File struct {
	Number   int
	Name     string // 0001_runs.sql
	SQL      string
	Checksum string
}

// A Mark is what a store remembers of a File that it has applied.
type Mark struct {
	Number   int
	Name     string
	Checksum string
}

// Files returns the migrations of a store, in order: "postgres" or "sqlite". A
// gap or a duplicate in their numbers is an error.
func Files(body string) ([]File, error) {
	entries, err := files.ReadDir(body)
	if err != nil {
		return nil, fmt.Errorf("no migrations for %q: want postgres or sqlite", body)
	}
	var list []File
	for _, entry := range entries { // sorted by name
		text, err := files.ReadFile(path.Join(body, entry.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, file(entry.Name(), string(text)))
	}
	return list, check(list)
}

func file(name, text string) File {
	prefix, _, _ := strings.Cut(name, "_")
	number, _ := strconv.Atoi(prefix) // 0 is no valid number: check says so
	sum := sha256.Sum256([]byte(text))
	return File{number, name, text, hex.EncodeToString(sum[:])}
}

func check(list []File) error {
	for i, f := range list {
		if f.Number != i+1 {
			return fmt.Errorf("migration %s stands where number %d belongs: numbers begin at 0001_ and have neither gaps nor duplicates", f.Name, i+1)
		}
	}
	return nil
}

// Next compares what a store has applied with what this binary knows. It returns
// the file to apply next, or nil where the store is up to date.
func Next(known []File, applied []Mark) (*File, error) {
	for i, mark := range applied {
		switch {
		case mark.Number != i+1:
			return nil, fmt.Errorf("the store has migration %s where number %d belongs: its list of migrations was edited", mark.Name, i+1)
		case i >= len(known):
			return nil, fmt.Errorf("the store is newer than this binary: it has migration %s, and this binary knows %d; use the newer binary", mark.Name, len(known))
		case mark.Checksum != known[i].Checksum:
			return nil, fmt.Errorf("migration %s was changed after it was applied to this store (there as %s, checksum %.12s, here %.12s): bring the file back, and put the change into a new one",
				known[i].Name, mark.Name, mark.Checksum, known[i].Checksum)
		}
	}
	if len(applied) < len(known) {
		return &known[len(applied)], nil
	}
	return nil, nil
}

// Target returns the SQL that prepares the target of SQL steps: "postgres",
// "mysql" (MariaDB too) or "sqlite". It may be applied any number of times.
func Target(dialect string) (string, error) {
	text, err := files.ReadFile("target/" + dialect + ".sql")
	if err != nil {
		return "", fmt.Errorf("no guard tables for %q: want postgres, mysql or sqlite", dialect)
	}
	return string(text), nil
}
