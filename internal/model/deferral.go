package model

import "errors"

// ErrDeferred is the error of a call that was deferred because many calls already wait. Nothing was sent. See
// Request.Deferral.
var ErrDeferred = errors.New("many calls wait for the model: this one will be made when its turn comes")

// Deferral allows a call to be deferred, and says how its caller is resumed when there is room again.
type Deferral struct {
	// Key identifies the caller. It has one place among the callers that were deferred.
	Key string
	// Resume is called once when there is room. It must not block. It may not be called at all: when a resumed caller does
	// not call again, the next one may be forgotten, so deferred callers must also check from time to time.
	Resume func()
	// Full is set when the call is deferred. It reports whether there is still no room.
	Full func() bool
}
