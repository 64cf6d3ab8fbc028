package jobs

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestASecretIsNeverShown(t *testing.T) {
	s := struct {
		Token Secret
		Inner *Secret
	}{Token: "hunter2"}
	s.Inner = &s.Token
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "token", s.Token, "all", s)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%s %v %+v %#v %q %x %d ", s.Token, s, s, s, s.Token, s.Token, s.Token) + log.String() + string(text)
	if strings.Contains(shown, "hunter2") || strings.Contains(shown, fmt.Sprintf("%x", "hunter2")) {
		t.Errorf("shown: %s", shown)
	}
	if s.Token.Reveal() != "hunter2" {
		t.Error("the secret cannot be used")
	}
}

func TestADurationIsReadWithItsUnitAndPrintedAsWritten(t *testing.T) {
	for text, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "10m": 10 * time.Minute} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
		if text != "90d" && Duration(got).String() != text {
			t.Errorf("%s is printed as %s", text, Duration(got))
		}
	}
	for _, bad := range []string{"", "10", "5x", "-3d", "99999d", "1.5d", "+5s", "-5s", "0", ".5s", "5.s", "1h-5m", "99999999h", "5 s"} {
		if d, err := ParseDuration(bad); err == nil {
			t.Errorf("%q was read as %s", bad, d)
		}
	}
}

func TestTheSameTickHasTheSameNameEverywhere(t *testing.T) {
	berlin, _ := time.LoadLocation("Europe/Berlin")
	due := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	j := &Job{Name: "restock", Lock: "inventory"}
	a, b := Tick{Job: j, Due: due, Attempt: 1}, Tick{Job: j, Due: due.In(berlin), Attempt: 1}
	if a.String() != b.String() || a.String() != "restock@2026-11-21T08:00:00Z" {
		t.Errorf("%s and %s", a, b)
	}
	if a.Lock() != "inventory" {
		t.Errorf("lock %s", a.Lock())
	}
	j.Overlap = OverlapAllow
	if later := (Tick{Job: j, Due: due.Add(time.Minute), Attempt: 1}); a.Lock() == later.Lock() {
		t.Error("ticks that may overlap share a lock")
	}
}

func TestEveryMistakeOfAJobIsFoundAtOnce(t *testing.T) {
	j := Job{
		Name: "x", TTL: Duration(time.Millisecond), Overlap: "perhaps", Timeout: -1, Cron: Strings{"bad"},
		Steps: []Step{
			{Name: "a", SQL: Strings{"SELECT 1"}},
			{Name: "a", Command: []string{"true"}, Target: "shop"},
			{Name: "b"},
			{Name: "c", HTTP: &HTTP{URL: "ftp://x"}},
		},
	}
	bad := j.Prepare()
	text := fmt.Sprint(bad)
	for _, want := range []string{"ttl", "overlap", "timeout", "cron", "say which database", "another step", "target belongs to", "exactly one", "want http://"} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing about %q in %s", want, text)
		}
	}
}
