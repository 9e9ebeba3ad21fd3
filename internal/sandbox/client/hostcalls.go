package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// maxHostCalls bounds the concurrent host calls of one isolate. The child has a lower limit.
const maxHostCalls = 1100

// maxHostCallBytes bounds the arguments of the concurrent host calls of one isolate. Otherwise a thousand calls with
// the largest values would use up the manager's memory.
const maxHostCallBytes = 96 << 20

// maxHostCallCost bounds the memory that the same arguments take when they are decoded.
const maxHostCallCost = 3 * value.MaxCost

// hostCalls answers the host calls of one stream.
type hostCalls struct {
	stream  *stream
	pending atomic.Int64
	bytes   atomic.Int64 // encoded
	cost    atomic.Int64 // of memory, decoded
}

// serve answers one call in a separate goroutine. An error means that the child exceeded its limits.
func (h *hostCalls) serve(ctx context.Context, call *protocol.HostCall, f sandbox.HostFunc, funcs bool) error {
	if h.pending.Add(1) > maxHostCalls {
		return protocol.Violation("more than %d host calls under way", maxHostCalls)
	}
	size := int64(len(call.Args))
	cost, large := value.CheckCost(call.Args)
	bytes, memory := h.bytes.Add(size), h.cost.Add(cost)
	ctx, over := membudget.Part(ctx)
	switch {
	case errors.Is(large, value.ErrTooLarge):
		f = refuse(short(large))
		call.Args = noArgs
	case bytes > maxHostCallBytes || memory > maxHostCallCost:
		f = refuse(errTooMuch)
		call.Args = noArgs
	default:
		if err := membudget.From(ctx).Draw(ctx, cost); err != nil {
			f = refuse(asError(err))
			call.Args = noArgs
		}
	}
	decode := value.Decode
	if funcs {
		decode = value.DecodeWithFuncs
	}
	v, err := decode(call.Args)
	if err != nil {
		over()
		return err
	}
	args, ok := v.([]any)
	if !ok {
		over()
		return protocol.Violation("a host call whose arguments are not an array")
	}
	id := call.ID // the encoded arguments are not needed any more
	go func() {
		defer over()
		defer h.pending.Add(-1)
		defer h.bytes.Add(-size)
		defer h.cost.Add(-cost)
		h.reply(id, invoke(ctx, f, args))
	}()
	return nil
}

// noArgs is the encoding of no arguments.
var noArgs, _ = value.Encode([]any{})

// refuse answers a call for whose arguments there is no memory.
func refuse(why *sandbox.Error) sandbox.HostFunc {
	return func(context.Context, []any) (any, error) { return nil, why }
}

// errTooMuch answers a call that exceeds maxHostCallBytes or maxHostCallCost.
var errTooMuch = &sandbox.Error{Name: "RangeError", Message: fmt.Sprintf("the calls of the host under way carry more than %d MiB, or take more than %d MiB of its memory: await some first", maxHostCallBytes>>20, maxHostCallCost>>20)}

// invoke calls a function of the host and encodes its result.
func invoke(ctx context.Context, f sandbox.HostFunc, args []any) (o protocol.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = protocol.Outcome{Err: &sandbox.Error{Name: "Error", Message: fmt.Sprintf("the host's function failed: %v", p)}}
		}
	}()
	v, err := f(ctx, args)
	if err != nil {
		return protocol.Outcome{Err: asError(err)}
	}
	b, err := value.EncodeWithin(v, answers{ctx}) // the sandbox may be slow to read it
	var unfit *value.Error
	switch {
	case errors.As(err, &unfit):
		return protocol.Outcome{Err: &sandbox.Error{Name: "TypeError", Message: err.Error()}}
	case err != nil:
		return protocol.Outcome{Err: asError(err)}
	}
	return protocol.Outcome{Value: b}
}

// asError returns what code sees of a Go error: name and message, never a Go stack.
func asError(err error) *sandbox.Error {
	if why := short(err); why != nil {
		return why
	}
	var e *sandbox.Error
	if errors.As(err, &e) {
		return &sandbox.Error{Name: e.Name, Message: e.Message}
	}
	return &sandbox.Error{Name: "Error", Message: err.Error()}
}

func (h *hostCalls) reply(id uint64, o protocol.Outcome) {
	r := protocol.Reply{ID: id, Outcome: o}
	err := h.stream.WriteParts(protocol.TypeReply, r.Head(), r.Value)
	if err != nil && h.stream.ctx.Err() == nil && o.Err == nil {
		// The stream works, so the value was too large for it.
		r.Outcome = protocol.Outcome{Err: &sandbox.Error{Name: "RangeError", Message: err.Error()}}
		_ = h.stream.Write(protocol.TypeReply, r.Encode())
	}
}
