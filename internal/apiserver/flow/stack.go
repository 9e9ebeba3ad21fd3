package flow

import "runtime"

// handlerStack is the stack that a request needs in the filters and its handler, in bytes: about sixty frames, and those of a query of the
// database.
const handlerStack = 20 << 10

// growStack makes the stack of the calling goroutine large enough for a request. A server handles each request in a new goroutine, whose small stack
// would otherwise be copied each time it is full, with more frames in it each time.
//
//go:noinline
func growStack() {
	var room [handlerStack]byte
	runtime.KeepAlive(&room)
}
