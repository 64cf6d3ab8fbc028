package redlock

import "time"

// A Status is what is known of one master, for people and for /readyz.
type Status struct {
	Name        string        // host:port, never with a password
	Err         error         // why it cannot vote; nil if it can
	RunID       string        // which life of the server this is
	Role        string        // "master", or what refuses it
	Version     string        // of the server
	RoundTrip   time.Duration // of the last answer
	Quarantined time.Time     // it gets no vote on new leases until then; zero if it does
	Why         string        // the reason of the quarantine
	Owed        int           // keys that it may have although nobody wants them, for the janitor to remove
}
