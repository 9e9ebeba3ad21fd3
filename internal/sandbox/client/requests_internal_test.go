package client

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/stacks"
)

// The transport ends a request whose answer has ended, perhaps before the end of the answer was read here. Requests
// to the isolate in between must get an error that says that the isolate is gone, and why.
func TestInvokeAtTheEndOfTheIsolate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, request := io.Pipe()
		answer, answers := io.Pipe()
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		i := &isolate{
			client: &Client{}, req: sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"m": {}}},
			stream: &stream{Conn: protocol.NewConn(answer, request, nil), body: answer, pipe: request, ctx: ctx, cancel: cancel},
			mapper: stacks.New(nil), gone: make(chan struct{}), waiting: map[uint64]chan outcome{}, invocations: map[string]context.Context{},
		}
		i.ctx, i.cancel = context.WithCancel(ctx)
		go i.read()
		_ = asked.Close()
		failed := make(chan error, 1)
		go func() {
			_, err := i.Invoke(t.Context(), "call", "m", nil)
			failed <- err
		}()
		synctest.Wait()
		end := protocol.Gone{Status: sandbox.StatusMemory, Reason: "no memory"}
		if err := protocol.NewConn(nil, answers, nil).Write(protocol.TypeGone, end.Encode()); err != nil {
			t.Fatal(err)
		}
		var gone *sandbox.IsolateGoneError
		if err := <-failed; !errors.As(err, &gone) || gone.Status != sandbox.StatusMemory || gone.Reason != "no memory" {
			t.Fatalf("%v", err)
		}
	})
}

// A transport may try a request again with the body that it has closed. Code whose first frame was sent twice would run twice.
func TestAClosedBodyGivesNoFrame(t *testing.T) {
	in, out := io.Pipe()
	first, err := protocol.NewFrame(protocol.TypeOpen, []byte("open"))
	if err != nil {
		t.Fatal(err)
	}
	body := newRequestBody(first, in)
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := body.Read(make([]byte, 100)); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("read %d bytes of a closed body, with the error %v", n, err)
	}
	if _, err := out.Write([]byte("more")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write into the pipe of a closed body ended with %v", err)
	}
}
