package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"quorate/redlock"
	"quorate/redlock/embedded"
)

// Five masters in this process stand for five servers.
func masters() (urls []string, stop func()) {
	m, err := embedded.Start(5)
	if err != nil {
		panic(err)
	}
	return m.URLs(), m.Close
}

func Example() {
	urls, stop := masters()
	defer stop()
	locker, err := redlock.New(redlock.Options{RestartGuard: -1}, urls...) // these masters are new, and nobody locked before
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	if _, err := locker.Check(context.Background()); err != nil { // connects
		fmt.Println(err)
		return
	}

	lease, err := locker.Acquire(context.Background(), "restock", 10*time.Second, "replica a")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lease.Release() }()
	held, stopKeeping := lease.Keep(context.Background(), redlock.Limits{})
	defer stopKeeping()

	fmt.Println("held:", held.Err() == nil, "more than nine seconds:", lease.Validity() > 9*time.Second)
	// Output: held: true more than nine seconds: true
}

func ExampleTakenError() {
	urls, stop := masters()
	defer stop()
	locker, err := redlock.New(redlock.Options{RestartGuard: -1}, urls...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	if _, err := locker.Check(context.Background()); err != nil {
		fmt.Println(err)
		return
	}

	lease, err := locker.Acquire(context.Background(), "restock", 10*time.Second, "replica a")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lease.Release() }()

	_, err = locker.Acquire(context.Background(), "restock", 10*time.Second, "replica b")
	var taken *redlock.TakenError
	if errors.As(err, &taken) {
		fmt.Printf("taken by %s\n", taken.Note)
	}
	// Output: taken by replica a
}
