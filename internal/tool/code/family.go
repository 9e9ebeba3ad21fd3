package code

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/life"
)

// getChildThread returns the properties of a child; null when there is none. The isolate makes a ThreadState of them
// whose method calls arrive as state.of (SUB-05).
func getChildThread(ctx context.Context, c *stateCall) (any, error) {
	reference, err := c.text(0, "child's reference")
	if err != nil {
		return nil, err
	}
	child, err := c.host.Threads.Store().Child(ctx, c.host.Thread.ID, reference)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c.properties(ctx, child.ID)
}

// getParentThread returns the properties of the parent as getChildThread does; null when there is none.
func getParentThread(ctx context.Context, c *stateCall) (any, error) {
	if c.host.Thread.ParentID == "" {
		return nil, nil
	}
	return c.properties(ctx, c.host.Thread.ParentID)
}

// caller returns the State whose code makes the call.
func (s *State) caller() *State {
	if s.asker != nil {
		return s.asker
	}
	return s
}

// properties returns the properties of another thread; nil when it no longer exists.
func (c *stateCall) properties(ctx context.Context, id string) (any, error) {
	other, done, err := c.caller().open(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	static, err := other.Static(ctx)
	return static, errors.Join(err, done(ctx))
}

// open returns the State of a thread in the thread's own tree. The code's right to it is checked here, at each call.
func (s *State) open(ctx context.Context, id string) (*State, func(context.Context) error, error) {
	if id == s.host.Thread.ID { // reached by way of a relative
		return s, func(context.Context) error { return nil }, nil
	}
	h, done, err := s.host.Family.Open(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return &State{host: h, edited: func() {}, asker: s}, done, nil
}

// of calls a method of another thread. Its arguments are the thread's id, the method and the method's arguments.
func of(ctx context.Context, c *stateCall) (any, error) {
	id, err := c.text(0, "thread's id")
	if err != nil {
		return nil, err
	}
	name, _ := c.arg(1).(string)
	args, ok := c.arg(2).([]any)
	if methods[name] == nil && name != "state.now" && name != "readFileStream.open" || !ok {
		return nil, &sandbox.Error{Name: "TypeError", Message: fmt.Sprintf("the thread has no method %q", name)}
	}
	other, done, err := c.open(ctx, id)
	if err != nil {
		return nil, err
	}
	if other != c.State && !life.Allows(life.Terminated, actions[name]) {
		// The thread's state was read a moment ago, so make the writes fail if the thread was terminated since.
		other.host.State = other.host.State.WhileActive()
	}
	v, err := other.Serve(ctx, c.invocation, name, args)
	return v, errors.Join(err, done(ctx))
}
