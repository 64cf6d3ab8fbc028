package steps

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"quorate/jobs"
)

// maxConns is how many steps may work on one target at a time. Each has a
// connection to itself, made for it or made as good as new, so that nothing of one
// step (a temporary table, a role, a setting) reaches the next.
const maxConns = 8

// checkLimit bounds Prepare and Check, so that a target that does not answer says so.
const checkLimit = 10 * time.Second

// Targets are the databases that SQL steps write to, by name.
type Targets struct {
	databases map[string]database
}

// Open reads the URLs of the targets: postgres://…, mysql://… (mariadb:// too) and
// sqlite:path. It does not dial: a target that is away must not keep a replica
// from starting. [Targets.Check] dials.
func Open(_ context.Context, urls map[string]jobs.Secret) (*Targets, error) {
	t := &Targets{databases: map[string]database{}}
	var bad []error
	for name, secret := range urls {
		db, err := open(secret.Reveal())
		if err != nil {
			bad = append(bad, fmt.Errorf("target %q: %s", name, hide(err.Error(), secret.Reveal())))
			continue
		}
		t.databases[name] = db
	}
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return t, errors.Join(bad...)
}

func open(address string) (database, error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		return openSQLite(strings.TrimPrefix(path, "//"))
	}
	u, err := url.Parse(address)
	if err != nil { // its text would show the password
		return nil, errors.New("the url cannot be read: percent-encode special characters in user and password, like %40 for @")
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		return openPostgres(address)
	case "mysql", "mariadb":
		return openMySQL(u)
	}
	return nil, errors.New("the url is of no kind that is known: want postgres://user:password@host/database, mysql://user:password@host/database or sqlite:path")
}

// hide takes an address and its password out of a driver's error text.
func hide(message, address string) string {
	message = strings.ReplaceAll(message, address, "***")
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return message
	}
	password, _ := u.User.Password()
	_, encoded, _ := strings.Cut(u.User.String(), ":")
	for _, secret := range []string{password, encoded} {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "***")
		}
	}
	return message
}

func (t *Targets) get(name string) (database, error) {
	if t != nil {
		if db, ok := t.databases[name]; ok {
			return db, nil
		}
	}
	return nil, fmt.Errorf("target %q is not defined: add [targets.%s] with its url", name, name)
}

// CheckStep says what is wrong with an SQL step, without dialing: a target that is
// not defined, or statements that its kind of database cannot run in a transaction.
func (t *Targets) CheckStep(step jobs.Step) error {
	db, err := t.get(step.Target)
	if err != nil {
		return err
	}
	_, err = db.rules().parseAll(step)
	return err
}

// Prepare creates the guard tables in a target, where they are not there yet.
func (t *Targets) Prepare(ctx context.Context, name string) error {
	return t.ask(ctx, name, database.prepare)
}

// Check says whether a target can be reached and has its guard tables.
func (t *Targets) Check(ctx context.Context, name string) error {
	return t.ask(ctx, name, database.check)
}

func (t *Targets) ask(ctx context.Context, name string, what func(database, context.Context) error) error {
	db, err := t.get(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	return named(name, what(db, ctx))
}

// Close lets go of the targets. Steps that are at work still keep their connections.
func (t *Targets) Close() {
	if t == nil {
		return
	}
	for _, db := range t.databases {
		db.close()
	}
}

// ErrUnprepared: a guard table is not there.
var ErrUnprepared = errors.New("the guard tables quorate_fence and quorate_effect are not there")

// named says which target an error is about, and what to do about missing tables.
func named(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnprepared):
		return fmt.Errorf("target %q: %w: run quorate migrate target %s", name, err, name)
	}
	return fmt.Errorf("target %q: %w", name, err)
}
