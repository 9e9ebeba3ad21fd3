package store

import "errors"

// IgnoreNotFound returns nil if err is ErrNotFound, otherwise err. It is for work on a thread that may have been deleted meanwhile.
func IgnoreNotFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// IgnoreGone returns nil if err says that a thread was deleted or is being deleted, or has lost its object and only its data is
// retained. It returns err otherwise.
func IgnoreGone(err error) error {
	if errors.Is(err, ErrRetained) || errors.Is(err, ErrObjectDeleted) {
		return nil
	}
	return IgnoreNotFound(err)
}
