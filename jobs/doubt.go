package jobs

import (
	"fmt"
	"time"
)

// Doubts returns what is allowed and probably not meant.
func (j *Job) Doubts(now time.Time) (doubts []Problem) {
	doubt := func(key, format string, args ...any) {
		doubts = append(doubts, Problem{[]string{"jobs", j.Name, key}, fmt.Sprintf("job %q: ", j.Name) + fmt.Sprintf(format, args...)})
	}
	if period := j.period(); period > 0 && j.TTL.D() > period {
		doubt("ttl", "its ttl of %s is longer than the %s between two ticks: when a replica vanishes during a run, several ticks wait for the lock", j.TTL, Duration(period))
	}
	if !j.Schedule().Never() && j.Schedule().Next(now).IsZero() {
		doubt("at", "is not due any more")
	}
	for key, value := range map[string]string{"dst_gap": string(j.DSTGap), "dst_fold": string(j.DSTFold)} {
		if value != "" && len(j.Cron) == 0 {
			doubt(key, "%s is for cron lines, and there is none", key)
		}
	}
	if j.Timezone != "" && len(j.Cron) == 0 && len(j.Except) == 0 {
		doubt("timezone", "timezone is for cron and except, and there is neither")
	}
	return doubts
}

// period is the shortest time between two ticks of one line, or 0 where there are
// no two.
func (j *Job) period() (shortest time.Duration) {
	shorter := func(d time.Duration) {
		if shortest == 0 || d < shortest {
			shortest = d
		}
	}
	for _, p := range j.cronParts() {
		shorter(p.spacing())
	}
	for _, d := range j.Every {
		shorter(d)
	}
	return shortest
}
