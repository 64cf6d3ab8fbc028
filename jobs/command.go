package jobs

import "slices"

// Exit says what the exit codes of a command mean. All that are not named are a
// failure of which nobody knows how far it got.
type Exit struct {
	Success []int `toml:"success"` // nothing here: 0
	Retry   []int `toml:"retry"`   // it has done nothing, and may be tried again
	Skip    []int `toml:"skip"`    // there is nothing to do, for the steps after it either
}

func (e Exit) set() bool { return len(e.Success)+len(e.Retry)+len(e.Skip) > 0 }

// Succeeds reports whether a command that ended so has done what it is for.
func (e Exit) Succeeds(code int) bool {
	return len(e.Success) == 0 && code == 0 || slices.Contains(e.Success, code)
}

func (s *Step) checkCommand(problem func(key, format string, args ...any)) {
	seen := map[int]bool{}
	for _, code := range slices.Concat(s.Exit.Success, s.Exit.Retry, s.Exit.Skip) {
		if code < 0 || code > 255 {
			problem("exit", "exit code %d: want 0 to 255", code)
		}
		if seen[code] || code == 0 && len(s.Exit.Success) == 0 {
			problem("exit", "exit code %d has two meanings", code)
		}
		seen[code] = true
	}
}
