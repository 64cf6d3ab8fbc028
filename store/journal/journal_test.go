package journal_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quorate/jobs"
	"quorate/store"
	"quorate/store/journal"
)

const childPath = "QUORATE_TEST_JOURNAL_PATH"

// TestMain is the process of TestAProcessThatIsKilled where it is told so: it
// appends for ever, and says what was acknowledged.
func TestMain(m *testing.M) {
	path := os.Getenv(childPath)
	if path == "" {
		os.Exit(m.Run())
	}
	j, _, err := journal.Open(path)
	for n := int64(1); err == nil; n++ {
		if err = j.Append(ending(n)); err == nil {
			fmt.Println(n)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func ending(n int64) (jobs.Run, jobs.Outcome) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 123456000, time.UTC)
	run := jobs.Run{ID: n, Job: "restock", Due: at, Attempt: 1, Trigger: jobs.TriggerSchedule, Status: jobs.Running, Lock: "inventory",
		Fence: jobs.Fence(n), Replica: "one", Started: at, LeaseUntil: at.Add(time.Minute), Evidence: jobs.Evidence{Votes: 5, Granted: time.Second}}
	return run, jobs.Outcome{Status: jobs.Failed, Reason: jobs.ReasonStep, Error: fmt.Sprint("end ", n), Evidence: jobs.Evidence{Left: time.Second},
		Steps: []jobs.StepRun{{Name: "tell", Kind: "http", Status: jobs.Failed, Started: at, Output: strings.Repeat("x", int(n%3000))}}}
}

func opened(t *testing.T, path string) (*journal.Journal, int) {
	t.Helper()
	j, torn, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, torn
}

func fill(t *testing.T, j *journal.Journal, from, to int64) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := j.Append(ending(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// told replays all and returns the ids, after it has checked that the rest is what
// was appended.
func told(t *testing.T, j *journal.Journal) (ids []int64) {
	t.Helper()
	err := j.Replay(t.Context(), func(_ context.Context, run jobs.Run, o jobs.Outcome) error {
		wantRun, want := ending(run.ID)
		if got, want := fmt.Sprintf("%+v %+v", run, o), fmt.Sprintf("%+v %+v", wantRun, want); got != want {
			t.Errorf("told\n%s\nwant\n%s", got, want)
		}
		ids = append(ids, run.ID)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func numbers(from, to int64) (list []int64) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

func TestWhatWasAppendedIsToldInOrderOnceAndAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, torn := opened(t, path)
	if torn != 0 || !j.Empty() || len(told(t, j)) != 0 {
		t.Fatalf("a new journal is torn by %d, and empty: %t", torn, j.Empty())
	}
	fill(t, j, 1, 20)
	j.Close()
	j, torn = opened(t, path)
	fill(t, j, 21, 30)
	if got := told(t, j); torn != 0 || !slices.Equal(got, numbers(1, 30)) || !j.Empty() {
		t.Errorf("told %v; torn by %d", got, torn)
	}
	fill(t, j, 31, 32)
	if got := told(t, j); !slices.Equal(got, numbers(31, 32)) {
		t.Errorf("told %v", got)
	}
	j.Close()
	if j, torn = opened(t, path); torn != 0 || !j.Empty() {
		t.Error("what was told is there again")
	}
}

func TestWhatCouldNotBeToldIsToldAgainFromThereOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := opened(t, path)
	fill(t, j, 1, 5)
	away := errors.New("away")
	var first []int64
	err := j.Replay(t.Context(), func(_ context.Context, run jobs.Run, _ jobs.Outcome) error {
		if run.ID == 3 {
			return away
		}
		if run.ID == 1 { // more comes while we replay
			fill(t, j, 6, 6)
		}
		first = append(first, run.ID)
		return nil
	})
	if !errors.Is(err, away) || !slices.Equal(first, []int64{1, 2}) || j.Empty() {
		t.Fatalf("told %v, %v", first, err)
	}
	if got := told(t, j); !slices.Equal(got, numbers(3, 6)) {
		t.Errorf("told %v", got)
	}
	// A process that died in between begins at the beginning.
	fill(t, j, 7, 9)
	_ = j.Replay(t.Context(), func(_ context.Context, run jobs.Run, _ jobs.Outcome) error {
		if run.ID == 9 {
			return away
		}
		return nil
	})
	j.Close()
	j, _ = opened(t, path)
	if got := told(t, j); !slices.Equal(got, numbers(7, 9)) {
		t.Errorf("told %v", got)
	}
}

func TestATornRecordIsFoundWhereverItWasTornAndNotObeyed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := opened(t, path)
	fill(t, j, 1, 2)
	j.Close()
	whole := size(t, path)
	j, _ = opened(t, path)
	fill(t, j, 3, 3)
	j.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	torn := [][]byte{}
	for end := whole; end < len(text); end += 1 + (end-whole)/20 {
		torn = append(torn, text[:end], // it ended here
			append(bytes.Clone(text[:end]), make([]byte, len(text)-end)...)) // the file had grown, and was not written to
	}
	for at := whole; at < len(text); at += 7 {
		flipped := bytes.Clone(text)
		flipped[at] ^= 1 << (at % 8)
		torn = append(torn, flipped)
	}
	for _, text := range torn {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, cut := opened(t, path)
		fill(t, j, 4, 4)
		if got := told(t, j); !slices.Equal(got, []int64{1, 2, 4}) || cut != len(text)-whole {
			t.Fatalf("of %d bytes, %d more than two records: told %v, and cut %d", len(text), len(text)-whole, got, cut)
		}
		if aside, _ := os.ReadFile(path + ".torn"); !bytes.Equal(aside, text[whole:]) {
			t.Fatalf("%d bytes were cut, and %d set aside", cut, len(aside))
		}
		j.Close()
	}
}

func size(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}

func TestAFileThatIsNoJournalIsLeftAlone(t *testing.T) {
	for text, ok := range map[string]bool{"": true, "quorate jour": true, "quorate journal 1\n": true,
		"quorate journal 2\n": false, "[replica]\nname = \"a\"\n": false, "\x00\x00\x00": false} {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		j, torn, err := journal.Open(path)
		if (err == nil) != ok || torn != 0 {
			t.Errorf("%q: torn by %d, %v", text, torn, err)
		}
		if err == nil {
			j.Close()
		} else if kept, _ := os.ReadFile(path); string(kept) != text {
			t.Errorf("%q became %q", text, kept)
		}
	}
}

func TestAJournalHasOneOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	opened(t, path)
	if _, _, err := journal.Open(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second owner got: %v", err)
	}
}

// A text that no database takes is kept as the store would keep it, so that a
// finish that was heard and one that is replayed say the same.
func TestTextsAreKeptAsTheStoreKeepsThem(t *testing.T) {
	j, _ := opened(t, filepath.Join(t.TempDir(), "journal"))
	bad := "bad \xff\xfe bytes, a\x00b"
	if err := j.Append(jobs.Run{ID: 1}, jobs.Outcome{Error: bad, Steps: []jobs.StepRun{{Output: bad}}}); err != nil {
		t.Fatal(err)
	}
	err := j.Replay(t.Context(), func(_ context.Context, _ jobs.Run, o jobs.Outcome) error {
		if o.Error != store.Text(bad) || o.Steps[0].Output != store.Text(bad) {
			t.Errorf("told %q, want %q", o.Error, store.Text(bad))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAProcessThatIsKilledLosesNothingThatWasAcknowledged(t *testing.T) {
	for round := range 20 {
		path := filepath.Join(t.TempDir(), "journal")
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childPath+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var acknowledged int64
		lines, most := bufio.NewScanner(out), 1+rand.IntN(60)
		for range most {
			if !lines.Scan() {
				t.Fatal("the process ended by itself")
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for more := true; more; more = lines.Scan() { // what it said before it died
			fmt.Sscan(lines.Text(), &acknowledged)
		}
		child.Wait() // says that it was killed
		j, torn := opened(t, path)
		got := told(t, j)
		if n := int64(len(got)); n < acknowledged || n > acknowledged+1 || !slices.Equal(got, numbers(1, n)) {
			t.Errorf("round %d: %d were acknowledged, %d are told; torn by %d", round, acknowledged, n, torn)
		}
		j.Close()
	}
}
