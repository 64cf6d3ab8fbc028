// Package journal keeps on this machine's disk how runs ended while the store was
// away, until the store has taken it.
//
// A journal is one file: a first line, then records, each with its length and a
// checksum. What [Journal.Append] has acknowledged is on the disk. A process that
// dies while it writes leaves a record that is torn; [Open] finds it by its
// checksum, cuts it off and sets it aside, and obeys nothing of it. Replay tells
// the store in the order of the records, and may tell it twice: after a crash it
// begins again. Store.Finish takes a repetition as what it is.
//
// One process has a journal at a time.
//
// What may live here: this file, and nothing that knows why a store is away.
package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"quorate/jobs"
	"quorate/store"
)

// head is the first line of the file: it says what follows.
const head = "quorate journal 1\n"

// frame is what stands before each record: its length and its checksum.
const frame = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Journal is an open file.
type Journal struct {
	mu   sync.Mutex // of the file
	file *os.File
	end  int64 // behind the last good record
	told int64 // behind the last record that the store has taken

	replay sync.Mutex // one at a time
}

// An entry is how one run ended.
type entry struct {
	Run     jobs.Run
	Outcome jobs.Outcome
}

// Open opens the journal at path, and creates it where there is none. It returns
// how many bytes at its end were no record that was written to its end; these are
// appended to path.torn, for people.
func Open(path string) (j *Journal, torn int, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("journal: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if err := lock(file); err != nil {
		return nil, 0, fmt.Errorf("journal %s: another process has it: %w", path, err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, 0, fmt.Errorf("journal %s: %w", path, err)
	}
	j = &Journal{file: file, told: int64(len(head))}
	switch {
	case bytes.HasPrefix([]byte(head), text): // new, or its creator died early
		err = j.begin()
	case !bytes.HasPrefix(text, []byte(head)):
		return nil, 0, fmt.Errorf("journal %s: this is no journal of ours: name another file", path)
	default:
		j.end = int64(len(head) + len(good(text[len(head):])))
		torn = len(text) - int(j.end)
		err = j.cut(text[j.end:])
	}
	if err != nil {
		return nil, 0, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, torn, nil
}

// begin writes the first line of a new journal.
func (j *Journal) begin() error {
	j.end = int64(len(head))
	if _, err := j.file.WriteAt([]byte(head), 0); err != nil {
		return err
	}
	return errors.Join(j.file.Sync(), syncFolder(j.file.Name()))
}

// cut sets a torn record aside.
func (j *Journal) cut(torn []byte) error {
	if len(torn) == 0 {
		return nil
	}
	aside, err := os.OpenFile(j.file.Name()+".torn", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = aside.Write(torn)
	if err := errors.Join(err, aside.Sync(), aside.Close()); err != nil {
		return err
	}
	return errors.Join(j.file.Truncate(j.end), j.file.Sync())
}

func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// good returns the records at the beginning of text that are whole.
func good(text []byte) []byte {
	rest := text
	for {
		record, behind := next(rest)
		if record == nil {
			return text[:len(text)-len(rest)]
		}
		rest = behind
	}
}

// next returns the first record of text and what is behind it; nil if it is torn,
// or there is none. No record is empty: a file that grew and was not written to is
// full of zeros, and the checksum of nothing is zero.
func next(text []byte) (record, behind []byte) {
	if len(text) < frame {
		return nil, text
	}
	size := binary.BigEndian.Uint32(text)
	if size == 0 || uint64(size) > uint64(len(text)-frame) {
		return nil, text
	}
	record = text[frame : frame+size]
	if crc32.Checksum(record, castagnoli) != binary.BigEndian.Uint32(text[4:]) {
		return nil, text
	}
	return record, text[frame+size:]
}

// Append writes how a run ended; it is on the disk when Append returns. After an
// error the journal is as it was before.
func (j *Journal) Append(run jobs.Run, outcome jobs.Outcome) error {
	outcome.Error, outcome.Steps = store.Text(outcome.Error), store.Steps(outcome.Steps) // as the store may have taken it already
	record, err := json.Marshal(entry{run, outcome})
	if err != nil {
		return fmt.Errorf("journal: run %d: %w", run.ID, err)
	}
	text := make([]byte, frame, frame+len(record))
	binary.BigEndian.PutUint32(text, uint32(len(record)))
	binary.BigEndian.PutUint32(text[4:], crc32.Checksum(record, castagnoli))
	text = append(text, record...)

	j.mu.Lock()
	defer j.mu.Unlock()
	_, err = j.file.WriteAt(text, j.end)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("journal %s: run %d: %w", j.file.Name(), run.ID, errors.Join(err, j.file.Truncate(j.end)))
	}
	j.end += int64(len(text))
	return nil
}

// Empty reports whether the store has taken all there is.
func (j *Journal) Empty() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.told == j.end
}

// Replay tells how runs ended, in the order in which they did, until tell returns
// an error: that run is told again the next time. What was told is forgotten.
func (j *Journal) Replay(ctx context.Context, tell func(context.Context, jobs.Run, jobs.Outcome) error) error {
	j.replay.Lock()
	defer j.replay.Unlock()
	for !j.Empty() {
		e, size, err := j.first()
		if err == nil {
			err = tell(ctx, e.Run, e.Outcome)
		}
		if err == nil {
			err = j.forget(size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// first reads the first record that the store has not taken yet.
func (j *Journal) first() (e entry, size int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := make([]byte, j.end-j.told)
	if _, err := j.file.ReadAt(text, j.told); err != nil {
		return e, 0, fmt.Errorf("journal %s: %w", j.file.Name(), err)
	}
	record, _ := next(text)
	if err := json.Unmarshal(record, &e); err != nil {
		return e, 0, fmt.Errorf("journal %s: the record at %d has changed since it was written: %w", j.file.Name(), j.told, err)
	}
	return e, frame + len(record), nil
}

// forget counts a record as told. The file is emptied when that was the last one.
func (j *Journal) forget(size int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.told += int64(size)
	if j.told < j.end {
		return nil
	}
	j.told, j.end = int64(len(head)), int64(len(head))
	if err := errors.Join(j.file.Truncate(j.end), j.file.Sync()); err != nil {
		return fmt.Errorf("journal %s: %w", j.file.Name(), err)
	}
	return nil
}

// Close gives the file free. What the store has not taken stays in it.
func (j *Journal) Close() error { return j.file.Close() }
