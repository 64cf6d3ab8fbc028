package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"quorate/jobs"
)

func every(t *testing.T, name string, d time.Duration, deadline time.Duration) *jobs.Job {
	return job(t, name, func(j *jobs.Job) {
		j.Every = jobs.Durations{d}
		j.StartDeadline = jobs.Duration(deadline)
	}, nothing)
}

// However late and irregular it is asked, even where the clock is set back.
func TestATimetableHandsOverEachTickOnce(t *testing.T) {
	begun := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	var all []*jobs.Job
	for i := range 50 {
		all = append(all, every(t, fmt.Sprint("j", i), time.Duration(i+1)*time.Second, time.Hour))
	}
	got := map[string]int{}
	table := newTimetable(all, begun, func(tick jobs.Tick) { got[tick.String()]++ })
	now := begun
	for range 2000 {
		next := table.handOver(now)
		if !next.After(now) {
			t.Fatalf("at %s the next tick is at %s", now, next)
		}
		now = now.Add(rand.N(3 * time.Second))
		if rand.N(10) == 0 {
			now = now.Add(-rand.N(2 * time.Second))
		}
	}
	table.handOver(now)
	want := 0
	for _, j := range all {
		for due := j.Schedule().Next(begun); !due.After(now); due = j.Schedule().Next(due) {
			want++
			if n := got[jobs.Tick{Job: j, Due: due}.String()]; n != 1 {
				t.Errorf("%s at %s was handed over %d times", j.Name, due, n)
			}
		}
	}
	if want < 1000 || len(got)-want > 50 { // one of each job may be handed over early
		t.Errorf("%d ticks handed over, %d were due", len(got), want)
	}
}

func TestATimetableLeavesTicksThatAreTooOldToTheSearchForGaps(t *testing.T) {
	begun := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	var got []time.Time
	table := newTimetable([]*jobs.Job{every(t, "j", time.Second, 10*time.Second)}, begun, func(tick jobs.Tick) { got = append(got, tick.Due) })
	now := begun.Add(time.Hour)
	next := table.handOver(now)
	if len(got) < 10 || len(got) > 11 || got[0].Before(now.Add(-10*time.Second)) || !got[len(got)-1].Equal(now) {
		t.Errorf("after an hour: %v", got)
	}
	if !next.Equal(now.Add(time.Second)) {
		t.Errorf("the next tick is at %s", next)
	}
}

func TestATimetableOfNothingIsNeverDue(t *testing.T) {
	begun := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	at := job(t, "once", func(j *jobs.Job) { j.At = jobs.Times{begun.Add(time.Minute)} }, nothing)
	n := 0
	table := newTimetable([]*jobs.Job{at, job(t, "never", nil, nothing)}, begun, func(jobs.Tick) { n++ })
	if next := table.handOver(begun); !next.Equal(begun.Add(time.Minute)) {
		t.Errorf("the next tick is at %s", next)
	}
	if next := table.handOver(begun.Add(time.Hour)); !next.IsZero() {
		t.Errorf("the next tick is at %s", next)
	}
	if n != 0 { // it was due an hour ago, and the deadline is a minute
		t.Errorf("%d ticks", n)
	}
}

// gocron calls from its own goroutines, and leaves fires out when it is late.
func TestGocronFiresForEveryTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, err := gocron.NewScheduler(gocron.WithLocation(time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		var all []*jobs.Job
		for i := range 20 {
			all = append(all, every(t, fmt.Sprint("j", i), time.Duration(1+i%7)*time.Second, time.Hour))
		}
		begun := time.Now()
		var late []time.Duration
		n := 0
		table := newTimetable(all, begun, func(tick jobs.Tick) {
			n++
			late = append(late, time.Since(tick.Due))
		})
		_, err = clock.NewJob(gocron.CronJob("x", false), gocron.NewTask(func() { table.handOver(time.Now()) }), gocron.WithCronImplementation(gocronSchedule{table}))
		if err != nil {
			t.Fatal(err)
		}
		clock.Start()
		time.Sleep(10 * time.Minute)
		_ = clock.Shutdown()
		want := 0
		for _, j := range all {
			for due := j.Schedule().Next(begun); !due.After(time.Now()); due = j.Schedule().Next(due) {
				want++
			}
		}
		if n < want-len(all) || n > want+len(all) {
			t.Errorf("%d ticks, want %d", n, want)
		}
		if most := slices.Max(late); most > 100*time.Millisecond {
			t.Errorf("a tick was %s late", most)
		}
	})
}
