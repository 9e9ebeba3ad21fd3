package client

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
)

// broken are the errors of a connection that ends without a reason. Their texts explain nothing.
var broken = []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}

// isBroken reports whether a connection ended without a reason. HTTP/2's own errors for that are not exported, so
// isBroken recognises them by their text.
func isBroken(err error) bool {
	return slices.ContainsFunc(broken, func(b error) bool { return errors.Is(err, b) }) || strings.Contains(err.Error(), "http2: ")
}

// wentAway returns a text for people who run code: why there is no answer, and what to do.
func wentAway(err error, started bool) string {
	text := "the sandbox went away before any of the code ran"
	if started {
		text = "the sandbox went away while the code ran"
	}
	if !isBroken(err) {
		return text + ": " + err.Error()
	}
	text += ": its pod was ended, or its connection was lost"
	if started {
		return text + "; run it again if it may run twice"
	}
	return text + "; run it again"
}
