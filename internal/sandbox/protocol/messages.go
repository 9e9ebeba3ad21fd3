package protocol

import (
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// Maximum lengths of texts. Encoders cut to these, and so do parsers, because a child may send anything.
const (
	MaxName    = 1 << 10
	MaxMessage = 16 << 10
	MaxStack   = 16 << 10
	MaxLog     = 64 << 10
	MaxReason  = 4 << 10
)

// Cut shortens a text to at most n bytes without splitting a character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const more = "…"
	n -= len(more)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + more
}

// Outcome is the result of a call: a value or an error.
type Outcome struct {
	Value []byte // encoded; used when Err is nil
	Err   *sandbox.Error
}

func (o Outcome) append(b []byte) []byte {
	b = appendBool(b, o.Err == nil)
	if o.Err == nil {
		return appendSpan(b, o.Value)
	}
	return appendError(b, o.Err)
}

// head is append without the bytes of the value, which follow.
func (o Outcome) head(b []byte) []byte {
	if o.Err != nil {
		return o.append(b)
	}
	return binary.AppendUvarint(appendBool(b, true), uint64(len(o.Value)))
}

func (p *parser) outcome() Outcome {
	if p.bool() {
		return Outcome{Value: p.span()}
	}
	return Outcome{Err: p.error()}
}

func appendError(b []byte, e *sandbox.Error) []byte {
	b = appendText(b, Cut(e.Name, MaxName))
	b = appendText(b, Cut(e.Message, MaxMessage))
	b = appendText(b, Cut(e.Stack, MaxStack))
	b = appendText(b, Cut(e.Specifier, MaxName))
	b = binary.AppendUvarint(b, uint64(max(e.Line, 0)))
	return binary.AppendUvarint(b, uint64(max(e.Column, 0)))
}

func (p *parser) error() *sandbox.Error {
	return &sandbox.Error{
		Name: p.cut(MaxName), Message: p.cut(MaxMessage), Stack: p.cut(MaxStack), Specifier: p.cut(MaxName),
		Line: p.number(1 << 30), Column: p.number(1 << 30),
	}
}

// Reply answers a HostCall.
type Reply struct {
	ID uint64
	Outcome
}

// Encode encodes a Reply.
func (m *Reply) Encode() []byte { return m.append(binary.AppendUvarint(nil, m.ID)) }

// Head is Encode without Value, which follows.
func (m *Reply) Head() []byte { return m.head(binary.AppendUvarint(nil, m.ID)) }

// ParseReply decodes a Reply.
func ParseReply(b []byte) (*Reply, error) {
	p := parser{r: value.NewReader(b)}
	m := &Reply{ID: p.uint(), Outcome: p.outcome()}
	return m, p.end("reply")
}

// EncodeText encodes a frame whose content is one text: the reason of a Terminate.
func EncodeText(s string) []byte { return []byte(Cut(s, MaxReason)) }

// ParseText decodes such a frame.
func ParseText(b []byte) string { return Cut(strings.ToValidUTF8(string(b), "\uFFFD"), MaxReason) }

// Describe asks what a module declares.
type Describe struct {
	ID     uint64
	Module string
}

// Encode encodes a Describe.
func (m *Describe) Encode() []byte { return appendText(binary.AppendUvarint(nil, m.ID), m.Module) }

// ParseDescribe decodes a Describe.
func ParseDescribe(b []byte) (*Describe, error) {
	p := parser{r: value.NewReader(b)}
	m := &Describe{ID: p.uint(), Module: p.text()}
	return m, p.end("describe")
}

// Invoke runs the definition of a module.
type Invoke struct {
	ID         uint64
	Invocation string
	Module     string
	Args       []byte // encoded
}

// Encode encodes an Invoke.
func (m *Invoke) Encode() []byte {
	b := appendText(binary.AppendUvarint(nil, m.ID), m.Invocation)
	return appendSpan(appendText(b, m.Module), m.Args)
}

// ParseInvoke decodes an Invoke.
func ParseInvoke(b []byte) (*Invoke, error) {
	p := parser{r: value.NewReader(b)}
	m := &Invoke{ID: p.uint(), Invocation: p.text(), Module: p.text(), Args: p.span()}
	return m, p.end("invoke")
}

// Call calls a function of the isolate.
type Call struct {
	ID   uint64
	Ref  sandbox.FuncRef
	Args []byte // an encoded array
}

// Encode encodes a Call.
func (m *Call) Encode() []byte {
	b := binary.AppendUvarint(binary.AppendUvarint(nil, m.ID), uint64(m.Ref))
	return appendSpan(b, m.Args)
}

// ParseCall decodes a Call.
func ParseCall(b []byte) (*Call, error) {
	p := parser{r: value.NewReader(b)}
	m := &Call{ID: p.uint(), Ref: sandbox.FuncRef(p.uint() & (1<<63 - 1)), Args: p.span()}
	return m, p.end("call")
}

// HostCall calls a function of the host: Bindings[Func] of a run, or Method of an isolate's state.
type HostCall struct {
	ID         uint64
	Func       uint64
	Method     string
	Invocation string
	Args       []byte // an encoded array
}

// Encode encodes a HostCall.
func (m *HostCall) Encode() []byte { return append(m.Head(), m.Args...) }

// Head is Encode without Args, which follow. So a frame of both is written without copying Args.
func (m *HostCall) Head() []byte {
	b := binary.AppendUvarint(make([]byte, 0, 64), m.ID)
	b = appendText(binary.AppendUvarint(b, m.Func), m.Method)
	return binary.AppendUvarint(appendText(b, m.Invocation), uint64(len(m.Args)))
}

// ParseHostCall decodes a HostCall.
func ParseHostCall(b []byte) (*HostCall, error) {
	p := parser{r: value.NewReader(b)}
	m := &HostCall{ID: p.uint(), Func: p.uint(), Method: p.cut(MaxName), Invocation: p.cut(MaxName), Args: p.span()}
	return m, p.end("host call")
}

// Log is one console call.
type Log struct {
	Invocation string
	sandbox.Log
}

// Encode encodes a Log.
func (m *Log) Encode() []byte {
	b := appendText(nil, m.Invocation)
	b = appendText(b, m.Level)
	b = binary.AppendVarint(b, m.Time.UnixMicro())
	return appendText(b, Cut(m.Message, MaxLog))
}

// ParseLog decodes a Log. An unknown level becomes info.
func ParseLog(b []byte) (*Log, error) {
	p := parser{r: value.NewReader(b)}
	m := &Log{Invocation: p.cut(MaxName), Log: sandbox.Log{Level: p.text(), Time: time.UnixMicro(p.int()).UTC(), Message: p.cut(MaxLog)}}
	switch m.Level {
	case "debug", "info", "warn", "error":
	default:
		m.Level = "info"
	}
	return m, p.end("log")
}

// Settled answers Describe, Invoke and Call. For a Describe it has an object with kind, description and args.
type Settled struct {
	ID uint64
	Outcome
}

// Encode encodes a Settled.
func (m *Settled) Encode() []byte { return m.append(binary.AppendUvarint(nil, m.ID)) }

// Head is Encode without Value, which follows.
func (m *Settled) Head() []byte { return m.head(binary.AppendUvarint(nil, m.ID)) }

// ParseSettled decodes a Settled.
func ParseSettled(b []byte) (*Settled, error) {
	p := parser{r: value.NewReader(b)}
	m := &Settled{ID: p.uint(), Outcome: p.outcome()}
	return m, p.end("settled")
}

// Done ends an isolate.
type Done struct {
	Status sandbox.Status
	Memory int64 // peak size of the engine's heap in bytes
	Outcome
}

// Encode encodes a Done.
func (m *Done) Encode() []byte {
	b := appendText(nil, string(m.Status))
	return m.append(binary.AppendUvarint(b, uint64(max(m.Memory, 0))))
}

// Head is Encode without Value, which follows.
func (m *Done) Head() []byte {
	b := appendText(nil, string(m.Status))
	return m.head(binary.AppendUvarint(b, uint64(max(m.Memory, 0))))
}

// ParseDone decodes a Done. A status that contradicts the outcome is a violation.
func ParseDone(b []byte) (*Done, error) {
	p := parser{r: value.NewReader(b)}
	m := &Done{Status: sandbox.Status(p.text()), Memory: int64(p.uint() & (1<<62 - 1)), Outcome: p.outcome()}
	if err := p.end("done"); err != nil {
		return nil, err
	}
	switch m.Status {
	case sandbox.StatusSuccess, sandbox.StatusError, sandbox.StatusLinkError, sandbox.StatusMemory, sandbox.StatusTerminated:
	default:
		return nil, Violation("unknown status")
	}
	if (m.Status == sandbox.StatusSuccess) != (m.Err == nil) {
		return nil, Violation("status and outcome differ")
	}
	return m, nil
}

// Gone says why a child ended without Done.
type Gone struct {
	Status sandbox.Status // memory or terminated
	Reason string
}

// Encode encodes a Gone.
func (m *Gone) Encode() []byte {
	return appendText(appendText(nil, string(m.Status)), Cut(m.Reason, MaxReason))
}

// ParseGone decodes a Gone.
func ParseGone(b []byte) (*Gone, error) {
	p := parser{r: value.NewReader(b)}
	m := &Gone{Status: sandbox.Status(p.text()), Reason: p.cut(MaxReason)}
	if m.Status != sandbox.StatusMemory {
		m.Status = sandbox.StatusTerminated
	}
	return m, p.end("gone")
}
