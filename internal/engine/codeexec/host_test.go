package codeexec

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/scopes"
	"github.com/skein-dev/skein/internal/tool"
)

// invoked is an isolate that is one call of its code.
type invoked struct {
	sandbox.Isolate
	call func(ctx context.Context) error
}

func (i invoked) Invoke(ctx context.Context, _, _ string, _ any) (any, error) {
	return nil, i.call(ctx)
}

func (invoked) Close() error { return nil }

func bareCodeHost() *Host {
	c := NewHost(context.Background(), &Environment{Log: logr.Discard()}, &store.Thread{}, "", nil)
	c.host = &tool.Host{Session: scopes.New(scopes.Options{})}
	return c
}

// The caller of the code gets its answer, also when the work that goes on after it has failed before the caller reads it.
func TestAnswerBeforeTheWorkAfterIt(t *testing.T) {
	for range 100 {
		c := bareCodeHost()
		v, err := c.invoke(t.Context(), invoked{call: func(ctx context.Context) error {
			if _, err := c.Serve(ctx, "i", methodRespond, []any{"answer"}); err != nil {
				return err
			}
			return &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: "lost", Started: true}
		}}, "i", "m", nil, time.Minute)
		if v != "answer" || err != nil {
			t.Fatalf("got %v, %v", v, err)
		}
	}
}

// Code whose time is up is told from code whose sandbox was lost, also where the isolate ends it before the context does.
func TestTimeIsUpWhoeverSaysSo(t *testing.T) {
	const timeout = 5 * time.Millisecond
	for range 20 {
		_, err := bareCodeHost().invoke(t.Context(), invoked{call: func(context.Context) error {
			for begun := time.Now(); time.Since(begun) < timeout; {
				continue // at it until the very moment
			}
			return &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: "the code ran for longer than 5ms, its limit", Started: true}
		}}, "i", "m", nil, timeout)
		if !errors.Is(err, ErrTimeout) {
			t.Fatalf("got %v", err)
		}
	}
}

// An isolate that ended with the work after an answer is none for the next call, whether its end or the answer was seen first.
func TestTheNextCallOpensAnotherIsolateThanTheOneThatEnded(t *testing.T) {
	for i := range 100 {
		c, answered := bareCodeHost(), make(chan struct{})
		c.iso = &invoked{call: func(ctx context.Context) error {
			if _, err := c.Serve(ctx, "i", methodRespond, []any{"answer"}); err != nil {
				return err
			}
			if i%2 == 0 {
				<-answered
			}
			return &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: "lost", Started: true}
		}}
		if v, err := c.Invoke(t.Context(), "i", "m", nil, time.Minute); v != "answer" || err != nil {
			t.Fatalf("got %v, %v", v, err)
		}
		close(answered)
		if err := c.host.Session.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.HasIsolate() {
			t.Fatal("the next call would go to the isolate that has ended")
		}
	}
}
