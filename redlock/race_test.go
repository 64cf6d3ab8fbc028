//go:build race

package redlock

// The race detector makes these tests six times slower: with it they look for races,
// without it they look at everything.
const underRace = true
