package auth

import "runtime"

// requestStack is the stack that a request needs from its authentication on, in bytes: about fifty frames of filters and handlers, and those of a
// query of the database.
const requestStack = 20 << 10

// growStack makes the stack of the calling goroutine large enough for a request. Each request has a goroutine of its own, or two, with a small
// stack. It would otherwise be copied each time it is full, with more frames in it each time. Authentication is the first filter that runs in the
// goroutine of the handler, whether the request has a deadline or not.
//
//go:noinline
func growStack() {
	var room [requestStack]byte
	runtime.KeepAlive(&room)
}
