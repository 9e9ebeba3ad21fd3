package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// Describe implements sandbox.Isolate.
func (i *isolate) Describe(ctx context.Context, module string) (*sandbox.Description, error) {
	if err := i.known(module); err != nil {
		return nil, err
	}
	v, err := i.request(ctx, protocol.TypeDescribe, func(id uint64) []byte {
		return (&protocol.Describe{ID: id, Module: module}).Encode()
	})
	if err != nil {
		return nil, err
	}
	m, _ := v.(map[string]any)
	d := &sandbox.Description{}
	d.Kind, _ = m["kind"].(string)
	d.Description, _ = m["description"].(string)
	if args, ok := m["args"].(map[string]any); ok {
		if err := value.Into(args, &d.Args); err != nil {
			return nil, fmt.Errorf("the schema of the arguments: %w", err)
		}
	}
	return d, nil
}

// Invoke implements sandbox.Isolate.
func (i *isolate) Invoke(ctx context.Context, invocation, module string, args any) (any, error) {
	if err := i.known(module); err != nil {
		return nil, err
	}
	encoded, err := value.Encode(args)
	if err != nil {
		return nil, &sandbox.Error{Name: "TypeError", Message: "the arguments: " + err.Error()}
	}
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(i.ctx, cancel)()
	i.mu.Lock()
	if _, twice := i.invocations[invocation]; twice {
		i.mu.Unlock()
		return nil, fmt.Errorf("invocation %q is under way already", invocation)
	}
	i.invocations[invocation] = callCtx
	i.mu.Unlock()
	defer func() {
		i.mu.Lock()
		delete(i.invocations, invocation)
		i.mu.Unlock()
	}()
	result, err := i.request(ctx, protocol.TypeInvoke, func(id uint64) []byte {
		return (&protocol.Invoke{ID: id, Invocation: invocation, Module: module, Args: encoded}).Encode()
	})
	if err == nil && errors.Is(context.Cause(i.client.ctx), errClosed) {
		// What came last may be the code's answer to a run of its own that Close ended.
		return nil, &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: errClosed.Error()}
	}
	return result, err
}

// Call implements sandbox.Isolate.
func (i *isolate) Call(ctx context.Context, ref sandbox.FuncRef, args []any) (any, error) {
	if args == nil {
		args = []any{}
	}
	encoded, err := value.Encode(args)
	if err != nil {
		return nil, &sandbox.Error{Name: "TypeError", Message: err.Error()}
	}
	return i.request(ctx, protocol.TypeCall, func(id uint64) []byte {
		return (&protocol.Call{ID: id, Ref: ref, Args: encoded}).Encode()
	})
}

func (i *isolate) known(module string) error {
	if _, ok := i.req.Modules[module]; !ok {
		return fmt.Errorf("the isolate has no module %q: it has %q", module, keys(i.req.Modules))
	}
	return nil
}

// request sends a frame and waits for its Settled.
func (i *isolate) request(ctx context.Context, t protocol.Type, encode func(id uint64) []byte) (any, error) {
	waiter := make(chan outcome, 1)
	i.mu.Lock()
	if i.err != nil {
		defer i.mu.Unlock()
		return nil, i.err
	}
	i.lastID++
	id := i.lastID
	i.waiting[id] = waiter
	i.mu.Unlock()
	defer func() {
		i.mu.Lock()
		delete(i.waiting, id)
		i.mu.Unlock()
		select {
		case o := <-waiter: // no caller has taken it
			i.stream.release(o.frame)
		default:
		}
	}()
	if err := i.stream.Write(t, encode(id)); err != nil {
		select {
		case <-i.gone:
			return nil, i.goneError()
		default:
		}
		if i.stream.ctx.Err() == nil && !errors.Is(err, io.ErrClosedPipe) {
			return nil, err // the stream works; the request cannot be sent
		}
		select { // the reader will see that the stream has ended, and why
		case <-i.gone:
			return nil, i.goneError()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	late, stop := i.clock()
	defer stop()
	select {
	case o := <-waiter:
		return i.outcome(ctx, o)
	case <-i.gone:
		// An answer that came just before the end still counts.
		select {
		case o := <-waiter:
			return i.outcome(ctx, o)
		default:
			return nil, i.goneError()
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-late:
		i.finish(&sandbox.IsolateGoneError{
			Status: sandbox.StatusTerminated,
			Reason: fmt.Sprintf("the code ran for longer than %s, its limit, and did not stop", i.wall()),
		})
		return nil, i.goneError()
	}
}

func (i *isolate) wall() time.Duration {
	wall, most := i.req.WallTime, i.client.opts.MaxWallTime
	if most > 0 && (wall <= 0 || wall > most) {
		return most
	}
	return wall
}

// clock returns a channel that fires when any answer would be too late.
func (i *isolate) clock() (<-chan time.Time, func()) {
	wall := i.wall()
	if wall <= 0 {
		return nil, func() {}
	}
	t := time.NewTimer(wall + wallGrace)
	return t.C, func() { t.Stop() }
}

// outcome decodes an answer. A malformed one ends the isolate.
func (i *isolate) outcome(ctx context.Context, o outcome) (any, error) {
	defer i.stream.release(o.frame)
	if o.Err != nil {
		if o.Err.Stack != "" {
			o.Err.Stack = o.Err.Error() + "\n" + i.mapper.Stack(o.Err.Stack)
		}
		return nil, o.Err
	}
	v, err := decode(ctx, o.Value)
	if errors.Is(err, membudget.ErrClosed) {
		return nil, nil // the code has answered before, and no caller waits for what its work after that returns
	}
	if why := short(err); why != nil {
		return nil, why
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, cause) {
		return nil, cause
	}
	if err != nil {
		i.finish(i.broken(err))
		return nil, i.goneError()
	}
	return v, nil
}
