//go:build linux && (amd64 || arm64)

package js

import (
	"encoding/binary"
	"errors"

	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// target names the host function of a call: Func for a run, Method and Invocation for an isolate.
type target struct {
	Func       uint64
	Method     string
	Invocation string
}

// hostCall calls the host and returns a promise of the answer. Arguments that cannot be encoded reject the promise.
// released, if not nil, is called when the call is over.
func (m *machine) hostCall(to target, args []qjs.Value, funcs qjs.FuncSink, released func()) (qjs.Value, bool) {
	if len(m.calls) >= maxCalls {
		return m.vm.ThrowError("RangeError", "too many calls of the host are under way: await some of the 1000 first")
	}
	site, ok := m.vm.Error("Error", "")
	if !ok {
		return site, false
	}
	promise, resolve, reject, ok := m.vm.Promise()
	if !ok {
		m.vm.Free(site)
		return promise, false
	}
	c := &call{resolve: resolve, reject: reject, site: site, released: released}
	encoded, err := m.vm.EncodeArgs(args, funcs)
	if err != nil {
		m.fail(c, err)
		return promise, true
	}
	defer m.vm.Release(encoded)
	m.lastCall++
	out := protocol.HostCall{ID: m.lastCall, Func: to.Func, Method: to.Method, Invocation: to.Invocation, Args: encoded}
	if err := m.conn.WriteParts(protocol.TypeHostCall, out.Head(), encoded); err != nil {
		m.fail(c, err)
		return promise, true
	}
	m.calls[out.ID] = c
	return promise, true
}

// fail rejects a call that could not be sent.
func (m *machine) fail(c *call, err error) {
	if errors.Is(err, qjs.ErrThrown) {
		reason := m.vm.Exception()
		m.settle(c.reject, reason)
		m.vm.Free(reason)
		m.free(c)
		return
	}
	m.reject(c, "TypeError", err.Error())
}

// reject rejects a call with an error whose stack shows the place of the call.
func (m *machine) reject(c *call, name, message string) {
	if m.vm.Reshape(c.site, name, message) {
		m.settle(c.reject, c.site)
	} else {
		m.vm.Free(m.vm.Exception())
	}
	m.free(c)
}

func (m *machine) settle(f, v qjs.Value) {
	r, ok := m.vm.Call(f, qjs.Undefined, v)
	if !ok {
		r = m.vm.Exception()
	}
	m.vm.Free(r)
}

func (m *machine) free(c *call) {
	for _, v := range []qjs.Value{c.resolve, c.reject, c.site} {
		m.vm.Free(v)
	}
	if c.released != nil {
		c.released()
	}
}

// reply settles the call that a Reply answers.
func (m *machine) reply(content []byte) error {
	r, err := protocol.ParseReply(content)
	if err != nil {
		return err
	}
	c, ok := m.calls[r.ID]
	if !ok {
		return nil
	}
	delete(m.calls, r.ID)
	if r.Err != nil {
		m.reject(c, r.Err.Name, r.Err.Message)
		return nil
	}
	v, err := m.vm.Decode(r.Value)
	switch {
	case errors.Is(err, qjs.ErrNoMemory):
		m.reject(c, "InternalError", "out of memory")
	case err != nil:
		return err
	default:
		m.settle(c.resolve, v)
		m.vm.Free(v)
		m.free(c)
	}
	return nil
}

// tooLarge rejects the call whose reply was larger than all memory that the code may use. It counts as a failed
// allocation, because that is what it would have been.
func (m *machine) tooLarge(id []byte) error {
	n, _ := binary.Uvarint(id)
	if c, ok := m.calls[n]; ok {
		delete(m.calls, n)
		m.vm.FailAllocation()
		m.reject(c, "InternalError", "out of memory")
	}
	return nil
}

// encodeFailure returns the outcome for an error of Encode, as if the code had thrown it.
func (m *machine) encodeFailure(err error) protocol.Outcome {
	if errors.Is(err, qjs.ErrThrown) {
		e, _ := m.pending()
		return protocol.Outcome{Err: e}
	}
	var refused *value.Error
	if errors.As(err, &refused) {
		return failure("TypeError", "%s", refused.Error())
	}
	return failure("Error", "%s", err.Error())
}
