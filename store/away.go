package store

// Away is the error of a store that cannot be reached: it is ErrAway, and its
// cause. The place is named without a password.
func Away(place string, cause error) error { return &away{place, cause} }

type away struct {
	place string
	cause error
}

func (e *away) Error() string   { return e.place + " cannot be reached: " + e.cause.Error() }
func (e *away) Unwrap() []error { return []error{ErrAway, e.cause} }
