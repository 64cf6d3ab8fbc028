//go:build !race

package redlock

const underRace = false
