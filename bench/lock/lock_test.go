//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("QUORATE_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// A run as JSON, as far as the tests look at it.
type written struct {
	Cases []struct {
		Name    string              `json:"name"`
		Samples map[string][]sample `json:"samples"`
		Aims    []struct {
			Got *float64 `json:"got"`
		} `json:"aims"`
	} `json:"cases"`
}

func TestEveryCaseMeasuresEverySubjectAndLeavesNothingBehind(t *testing.T) {
	needRedis(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-rounds", "1", "-time", "40ms", "-json"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var got written
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Cases) != len(scenarios()) {
		t.Fatalf("%d cases, want %d", len(got.Cases), len(scenarios()))
	}
	for i, want := range scenarios() {
		if len(got.Cases[i].Aims) != len(want.aims) {
			t.Errorf("%s: %d verdicts, want %d", want.name, len(got.Cases[i].Aims), len(want.aims))
		}
		for _, sub := range want.subjects {
			samples := got.Cases[i].Samples[sub.name]
			if len(samples) != 1 || samples[0].Ops+samples[0].Errors == 0 && want.name == "c1" {
				t.Errorf("%s, %s: %+v, want one sample, with operations", want.name, sub.name, samples)
			}
		}
	}
	if rest, err := os.ReadDir(dir); err != nil || len(rest) > 0 {
		t.Errorf("the servers left %v (%v)", rest, err)
	}
}

func TestAProfileIsOfQuorateAlone(t *testing.T) {
	needRedis(t)
	cpu, mem := t.TempDir()+"/cpu", t.TempDir()+"/mem"
	var out bytes.Buffer
	args := []string{"-rounds", "1", "-time", "40ms", "-case", "c16", "-cpuprofile", cpu, "-memprofile", mem}
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{cpu, mem} {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if strings.Contains(out.String(), "\n  redsync") || !strings.Contains(out.String(), "\n  quorate") {
		t.Errorf("want a row for quorate and none for redsync:\n%s", out.String())
	}
}

func TestMistakesInTheArgumentsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-case c2":                   `"c2": there are c1, c16`,
		"-rounds 0":                  "more than none",
		"-cpuprofile x":              "name it with -case",
		"-cpuprofile x -case c1,c16": "name it with -case",
		"c1":                         `unexpected argument "c1"`,
	} {
		_, err := parse(strings.Fields(args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestARatioIsTakenWithinARound(t *testing.T) {
	// A machine that slows down between the rounds must not show in the ratio.
	r := rounds{
		"a": {{PerSecond: 20}, {PerSecond: 200}, {PerSecond: 2000}},
		"b": {{PerSecond: 10}, {PerSecond: 50}, {PerSecond: 1000}},
	}
	if got := ratioOf(perSecond, "a", "b")(r); got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := ratioOf(perSecond, "a", "absent")(r); !math.IsNaN(got) {
		t.Errorf("ratio to nothing %v, want NaN", got)
	}
}

func TestASlowMasterAnswersLateButNoLessOften(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		conn, err := server.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn) // an echo
		}
	}()
	p, err := newProxy(server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.delay(lateness)
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	// Requests a fifth of the lateness apart must not queue behind each other.
	const requests = 50
	sent := make(chan time.Time, requests)
	go func() {
		for i := range requests {
			sent <- time.Now()
			fmt.Fprintf(conn, "%02d", i)
			time.Sleep(lateness / 5)
		}
	}()
	var fastest, last time.Duration = time.Hour, 0
	for range requests {
		var answer [2]byte
		if _, err := io.ReadFull(conn, answer[:]); err != nil {
			t.Fatal(err)
		}
		last = time.Since(<-sent)
		fastest = min(fastest, last)
	}
	if fastest < lateness {
		t.Errorf("an answer after %s, want none before %s", fastest, lateness)
	}
	if most := requests * lateness / 2; last > most {
		t.Errorf("the last answer after %s: they queue", last)
	}
}
