package sqlite

import (
	"database/sql/driver"
	"fmt"
	"time"

	"quorate/store"
)

// An instant is a time as the file keeps it: text of one width, so that its order
// is that of time, and NULL for the zero time.
type instant time.Time

const layout = "2006-01-02T15:04:05.000000Z"

func (i instant) Value() (driver.Value, error) {
	if time.Time(i).IsZero() {
		return nil, nil
	}
	return store.Instant(time.Time(i)).Format(layout), nil
}

func (i *instant) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*i = instant{}
		return nil
	case string:
		t, err := time.Parse(layout, v)
		*i = instant(t)
		return err
	}
	return fmt.Errorf("an instant is text, not %T", value)
}

func scanInstant(rows interface{ Scan(...any) error }) (time.Time, error) {
	var i instant
	err := rows.Scan(&i)
	return time.Time(i), err
}
