package client

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func TestWentAway(t *testing.T) {
	const lost = "the sandbox went away while the code ran: its pod was ended, or its connection was lost; run it again if it may run twice"
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("read: %w", syscall.ECONNRESET), lost},
		// Which error it is depends on which side notices first.
		{errors.New("http2: client connection lost"), lost},
		{fmt.Errorf("send a frame: %w", errors.New("http2: client conn is closed")), lost},
		{errors.New("a frame of 3 GiB"), "the sandbox went away while the code ran: a frame of 3 GiB"},
	} {
		if got := wentAway(c.err, true); got != c.want {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
}
