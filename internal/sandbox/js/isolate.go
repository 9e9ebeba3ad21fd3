//go:build linux && (amd64 || arm64)

package js

import (
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// isolate runs definition code until the manager closes it. All invocations share one engine, and with it
// state.context and the modules' own variables (STA-08). Its fields belong to the engine's goroutine.
type isolate struct {
	*machine
	wall time.Duration

	describe, invoke qjs.Value // of lib.Definition

	refs    map[sandbox.FuncRef]qjs.Value // functions that the host may call
	lastRef sandbox.FuncRef

	active    map[uint64]string // current invocations, by request
	deadlines map[uint64]*deadline
}

// maxRefs bounds the functions that the host holds at the same time.
const maxRefs = 10_000

// isolate executes an Open of KindIsolate.
func (m *machine) isolate(open *protocol.Open) error {
	i := &isolate{
		machine: m, wall: open.Wall,
		refs: map[sandbox.FuncRef]qjs.Value{}, active: map[uint64]string{}, deadlines: map[uint64]*deadline{},
	}
	if err := i.prepare(open); err != nil {
		return m.ended(err)
	}
	for {
		if err := i.turn(); err != nil {
			return m.ended(err)
		}
		if err := i.unstick(); err != nil {
			return m.ended(err)
		}
		if err := i.wait(i.handle); err != nil {
			return m.ended(err)
		}
	}
}

// prepare adds the modules and makes the environment.
func (i *isolate) prepare(open *protocol.Open) error {
	l := &loader{sources: map[string]qjs.Source{}, bare: libraries()}
	for _, m := range open.Modules {
		l.sources[m.Name] = qjs.Source{Code: m.Source}
	}
	i.vm.SetLoader(l)

	i.console.invocation = i.speaker
	i.console.most, i.console.mostBytes = sandbox.MaxIsolateLogs, sandbox.MaxIsolateLogBytes
	begin := i.begin
	var err error
	if qjs.IsUndefined(begin) {
		begin, err = i.environment()
	} else {
		err = i.adopt()
	}
	if err != nil {
		return err
	}
	// begin is not freed: the engine ends with the isolate, and to free it would only copy pages of an image.
	statics, err := i.statics(open)
	if err != nil {
		return err
	}
	defer i.vm.Free(statics)
	api, ok := i.vm.Call(begin, qjs.Undefined, statics)
	if !ok {
		return i.broken()
	}
	defer i.vm.Free(api)
	var okD, okI bool
	i.describe, okD = i.vm.Get(api, "describe")
	i.invoke, okI = i.vm.Get(api, "invoke")
	if !okD || !okI {
		return i.broken()
	}
	return nil
}

// broken returns the error for a failure that only a lack of memory, or a mistake of ours, can cause.
func (i *isolate) broken() error {
	e, info := i.pending()
	if info.IsOutOfMemory() {
		return errMemory
	}
	return fmt.Errorf("preparing the isolate: %w", e)
}

// speaker returns the invocation that a console call belongs to, when there is only one.
func (i *isolate) speaker() string {
	if len(i.active) != 1 {
		return ""
	}
	for _, invocation := range i.active {
		return invocation
	}
	return ""
}

// handle handles a request of the manager.
func (i *isolate) handle(f frame) error {
	switch f.typ {
	case protocol.TypeDescribe:
		d, err := protocol.ParseDescribe(f.content)
		if err != nil {
			return err
		}
		return i.withModule(d.ID, d.Module, func(ns qjs.Value) (qjs.Value, error) {
			return i.call(i.describe, ns)
		})
	case protocol.TypeInvoke:
		inv, err := protocol.ParseInvoke(f.content)
		if err != nil {
			return err
		}
		// Decode now: the frame is freed when this returns, before the module is loaded.
		args, err := i.vm.Decode(inv.Args)
		if err != nil {
			return memoryOr(err)
		}
		i.active[inv.ID] = inv.Invocation
		return i.withModule(inv.ID, inv.Module, func(ns qjs.Value) (qjs.Value, error) {
			return i.callInvoke(ns, inv.Invocation, args)
		}, args)
	case protocol.TypeCall:
		c, err := protocol.ParseCall(f.content)
		if err != nil {
			return err
		}
		return i.callRef(c)
	}
	return protocol.Violation("frame type %d in an isolate", f.typ)
}

// errThrown means that the engine holds an exception.
var errThrown = errors.New("thrown")

func (i *isolate) call(f qjs.Value, args ...qjs.Value) (qjs.Value, error) {
	v, ok := i.vm.Call(f, qjs.Undefined, args...)
	if !ok {
		return v, errThrown
	}
	return v, nil
}

func (i *isolate) callInvoke(ns qjs.Value, name string, args qjs.Value) (qjs.Value, error) {
	invocation, ok := i.vm.String(name)
	if !ok {
		return invocation, errThrown
	}
	defer i.vm.Free(invocation)
	return i.call(i.invoke, ns, invocation, args)
}

// withModule imports a module, then calls f with its namespace, and answers the request with the result of f. It
// frees the values that f needs afterwards, whether f was called or not.
func (i *isolate) withModule(id uint64, module string, f func(ns qjs.Value) (qjs.Value, error), needs ...qjs.Value) error {
	free := func() {
		for _, v := range needs {
			i.vm.Free(v)
		}
	}
	if err := i.start(); err != nil {
		free()
		return err
	}
	deadline := i.deadline(id) // first, because Import runs what the module does before it awaits anything
	promise, ok := i.vm.Import(internal, module)
	if !ok {
		free()
		return i.answerPending(id)
	}
	i.awaitPromise(id, promise, deadline, func(ns qjs.Value) error {
		v, err := f(ns)
		return i.answerWith(id, v, err, deadline)
	}).over = free
	return nil
}

// memoryOr distinguishes an engine without memory from a malformed message.
func memoryOr(err error) error {
	if errors.Is(err, qjs.ErrNoMemory) {
		return errMemory
	}
	return err
}

// answerWith answers a request with the value that v settles to.
func (i *isolate) answerWith(id uint64, v qjs.Value, err error, deadline *deadline) error {
	switch {
	case errors.Is(err, errThrown):
		return i.answerPending(id)
	case errors.Is(err, qjs.ErrNoMemory):
		return errMemory
	case err != nil:
		return err
	}
	promise, ok := i.vm.Settled(v)
	i.vm.Free(v)
	if !ok {
		return i.answerPending(id)
	}
	i.awaitPromise(id, promise, deadline, func(result qjs.Value) error {
		b, err := i.vm.Encode(result, nil)
		if err != nil {
			if errors.Is(err, qjs.ErrStopped) {
				return errStopped
			}
			return i.answer(id, i.encodeFailure(err))
		}
		defer i.vm.Release(b)
		return i.answer(id, protocol.Outcome{Value: b})
	})
	return nil
}

// awaitPromise waits for a promise for a request.
func (i *isolate) awaitPromise(id uint64, promise qjs.Value, d *deadline, then func(qjs.Value) error) *task {
	t := &task{promise: promise}
	t.done = func(state qjs.PromiseState, v qjs.Value) error {
		d.task = nil
		if state == qjs.Rejected {
			return i.answerThrown(id, v)
		}
		return then(v)
	}
	t.stuck = func() error {
		return i.answer(id, failure("Error", "the code awaits a promise that nothing settles any more"))
	}
	d.task = t
	i.tasks = append(i.tasks, t)
	return t
}

// callRef calls a function that the code passed to the host.
func (i *isolate) callRef(c *protocol.Call) error {
	f, ok := i.refs[c.Ref]
	if !ok {
		return i.answer(c.ID, failure("ReferenceError", "the function is gone: what it was handed out for has ended"))
	}
	args, err := i.vm.DecodeArgs(c.Args)
	if err != nil {
		return memoryOr(err)
	}
	deadline := i.deadline(c.ID)
	v, err := i.call(f, args...)
	for _, a := range args {
		i.vm.Free(a)
	}
	return i.answerWith(c.ID, v, err, deadline)
}

// answer settles a request.
func (i *isolate) answer(id uint64, o protocol.Outcome) error {
	delete(i.active, id)
	i.clear(id)
	s := protocol.Settled{ID: id, Outcome: o}
	err := i.conn.WriteParts(protocol.TypeSettled, s.Head(), o.Value)
	if err != nil && o.Err == nil {
		s.Outcome = failure("RangeError", "%v", err)
		err = i.conn.Write(protocol.TypeSettled, s.Encode())
	}
	return err
}

func (i *isolate) answerPending(id uint64) error {
	v := i.vm.Exception()
	defer i.vm.Free(v)
	return i.answerThrown(id, v)
}

// answerThrown settles a request with what its code threw. Running out of memory ends the isolate.
func (i *isolate) answerThrown(id uint64, v qjs.Value) error {
	if i.vm.Stopped() {
		return errStopped
	}
	e, info := i.thrown(v)
	if info.IsOutOfMemory() {
		return errMemory
	}
	return i.answer(id, protocol.Outcome{Err: e})
}
