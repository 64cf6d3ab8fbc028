package jobs

import "time"

// A jitteredPart moves each instant of a part later, by less than its jitter. How
// much is a hash of the job's name and of the instant: the same on every replica,
// and spread evenly over jobs and over instants.
type jitteredPart struct {
	part
	jitter time.Duration
	seed   uint64
}

func jittered(p part, jitter time.Duration, job string) jitteredPart {
	seed := uint64(14695981039346656037) // FNV-1a
	for _, c := range []byte(job) {
		seed = (seed ^ uint64(c)) * 1099511628211
	}
	return jitteredPart{p, jitter, seed}
}

// moved is where an instant of the part has gone, to the millisecond.
func (j jitteredPart) moved(t time.Time) time.Time {
	h := j.seed ^ uint64(t.UnixMilli())
	// The end of splitmix64: each bit of h changes half of the bits.
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return t.Add(time.Duration(h%uint64(j.jitter/time.Millisecond)) * time.Millisecond)
}

// next looks at the instants that may have moved to where the next one is: those
// behind after less the jitter, up to the earliest that was found.
func (j jitteredPart) next(after time.Time) (first time.Time) {
	for t := j.part.next(after.Add(-j.jitter)); !t.IsZero() && (first.IsZero() || t.Before(first)); t = j.part.next(t) {
		if m := j.moved(t); m.After(after) && (first.IsZero() || m.Before(first)) {
			first = m
		}
	}
	return first
}

func (j jitteredPart) last(at time.Time) (latest time.Time) {
	for t := j.part.last(at); !t.IsZero() && (latest.IsZero() || t.Add(j.jitter).After(latest)); t = j.part.last(t.Add(-1)) {
		if m := j.moved(t); !m.After(at) && m.After(latest) {
			latest = m
		}
	}
	return latest
}
