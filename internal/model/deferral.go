package model

import "errors"

// ErrDeferred is the error of a call that was turned away because many calls already wait. Nothing was sent. See
// Request.Deferral.
var ErrDeferred = errors.New("many calls wait for the model: this one will be made when its turn comes")

// Deferral says whom to notify when there is room again for a call that was turned away.
type Deferral struct {
	// Key identifies the caller. It has one place among the callers that were turned away.
	Key string
	// Again is called once when there is room. It must not block. The call can be lost: when a notified caller does not
	// come, the next one may be forgotten, so waiting callers must also check from time to time.
	Again func()
	// Full is set when the call is turned away. It reports whether there is still no room.
	Full func() bool
}
