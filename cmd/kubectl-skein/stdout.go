package main

import (
	"context"
	"io"
	"sync"
)

// checkedOutput is the standard output of a command. Most of what prints does not look at the errors of writes. So checkedOutput remembers
// the first one, and ends the command.
type checkedOutput struct {
	to  io.Writer
	end context.CancelCauseFunc

	mu  sync.Mutex
	err error
}

// Write implements io.Writer.
func (o *checkedOutput) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil {
		o.mu.Lock()
		if o.err == nil {
			o.err = err
		}
		o.mu.Unlock()
		o.end(err)
	}
	return n, err
}

// failed returns the error of the first write that failed.
func (o *checkedOutput) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
