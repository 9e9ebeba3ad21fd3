package protocol_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// message is any message of the protocol.
type message interface{ Encode() []byte }

// parsers are the decoders of both sides, by type of frame.
var parsers = map[protocol.Type]func([]byte) (message, error){
	protocol.TypeReply:    func(b []byte) (message, error) { return parsed(protocol.ParseReply(b)) },
	protocol.TypeDescribe: func(b []byte) (message, error) { return parsed(protocol.ParseDescribe(b)) },
	protocol.TypeInvoke:   func(b []byte) (message, error) { return parsed(protocol.ParseInvoke(b)) },
	protocol.TypeCall:     func(b []byte) (message, error) { return parsed(protocol.ParseCall(b)) },
	protocol.TypeHostCall: func(b []byte) (message, error) { return parsed(protocol.ParseHostCall(b)) },
	protocol.TypeLog:      func(b []byte) (message, error) { return parsed(protocol.ParseLog(b)) },
	protocol.TypeSettled:  func(b []byte) (message, error) { return parsed(protocol.ParseSettled(b)) },
	protocol.TypeDone:     func(b []byte) (message, error) { return parsed(protocol.ParseDone(b)) },
	protocol.TypeGone:     func(b []byte) (message, error) { return parsed(protocol.ParseGone(b)) },
	protocol.TypeOpen:     func(b []byte) (message, error) { return parsed(openOf(b)) },
}

type openMessage struct{ *protocol.Open }

func (m openMessage) Encode() []byte {
	b, err := m.Open.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

func openOf(b []byte) (openMessage, error) {
	o, err := protocol.ParseOpen(b)
	return openMessage{o}, err
}

func parsed[M message](m M, err error) (message, error) { return m, err }

// FuzzFrames reads any bytes as the input from the other side of a pipe. Every frame must be valid, or the stream
// must end with an error, and a parsed message must encode to the same bytes again.
func FuzzFrames(f *testing.F) {
	v, _ := value.Encode([]any{1.0, "x", map[string]any{"k": nil}})
	failed := protocol.Outcome{Err: &sandbox.Error{Name: "TypeError", Message: "m", Stack: "at x", Specifier: "./a", Line: 1, Column: 2}}
	open := &protocol.Open{
		Limits: protocol.Limits{Kind: protocol.KindRun, Memory: 1 << 20, Wall: 1}, Main: "main.ts", Fn: "f", Args: v,
		Modules: []protocol.Module{{Name: "main.ts", Form: protocol.FormTypeScript, Source: "1"}}, Bindings: []protocol.Binding{{Name: "g", Func: true}, {Specifier: "s", Name: "n", Value: v}},
	}
	for t, m := range map[protocol.Type]message{
		protocol.TypeReply: &protocol.Reply{ID: 1, Outcome: failed}, protocol.TypeDescribe: &protocol.Describe{ID: 1, Module: "m"},
		protocol.TypeInvoke: &protocol.Invoke{ID: 1, Invocation: "i", Module: "m", Args: v}, protocol.TypeCall: &protocol.Call{ID: 1, Ref: 2, Args: v},
		protocol.TypeHostCall: &protocol.HostCall{ID: 1, Func: 2, Method: "m", Invocation: "i", Args: v}, protocol.TypeLog: &protocol.Log{Log: sandbox.Log{Level: "warn", Message: "x"}},
		protocol.TypeSettled: &protocol.Settled{ID: 1, Outcome: protocol.Outcome{Value: v}}, protocol.TypeDone: &protocol.Done{Status: sandbox.StatusError, Memory: 5, Outcome: failed},
		protocol.TypeGone: &protocol.Gone{Status: sandbox.StatusMemory, Reason: "r"}, protocol.TypeOpen: openMessage{open},
	} {
		var b bytes.Buffer
		if err := protocol.NewConn(nil, &b, nil).Write(t, m.Encode()); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		f.Add(append(b.Bytes(), b.Bytes()[:b.Len()/2]...))
	}
	f.Add([]byte{0, 0, 0, 0, 19})
	f.Add([]byte{0xFF, 0xFF, 0xFF, 0xFF, 19, 1})
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := protocol.NewConn(bytes.NewReader(stream), io.Discard, nil)
		for {
			typ, content, err := c.Read()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, protocol.ErrProtocol) {
					t.Fatalf("a stream ends with %v", err)
				}
				return
			}
			understood(t, typ, content)
		}
	})
}

func understood(t *testing.T, typ protocol.Type, content []byte) {
	t.Helper()
	parse := parsers[typ]
	if parse == nil {
		return
	}
	m, err := parse(content)
	if err != nil {
		if !errors.Is(err, protocol.ErrProtocol) {
			t.Fatalf("type %d is refused with %v", typ, err)
		}
		return
	}
	again, err := parse(m.Encode())
	if err != nil {
		t.Fatalf("type %d does not understand its own words: %v", typ, err)
	}
	if !reflect.DeepEqual(m, again) {
		t.Fatalf("type %d says %+v, then %+v", typ, m, again)
	}
}
