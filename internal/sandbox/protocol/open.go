package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// Kind is the kind of an isolate.
type Kind byte

// The kinds.
const (
	KindRun     Kind = 1 // one runCode call
	KindIsolate Kind = 2 // definition code, until the manager closes it
)

// Limits are the limits of an isolate: the first bytes of an Open, so that a supervisor can cap them without reading
// further.
type Limits struct {
	Kind   Kind
	Memory int64         // bytes of the engine's heap
	Wall   time.Duration // for the run, or for each Invoke
}

// LimitsSize is the number of bytes of the limits in an Open.
const LimitsSize = 17

// Append appends the limits in their fixed form.
func (l Limits) Append(b []byte) []byte {
	b = append(b, byte(l.Kind))
	b = binary.BigEndian.AppendUint64(b, uint64(max(l.Memory, 0)))
	return binary.BigEndian.AppendUint64(b, uint64(max(l.Wall, 0)))
}

// ParseLimits parses the limits at the start of an Open.
func ParseLimits(b []byte) (Limits, error) {
	if len(b) < LimitsSize {
		return Limits{}, Violation("short open")
	}
	l := Limits{Kind: Kind(b[0])}
	memory, wall := binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])
	if l.Kind != KindRun && l.Kind != KindIsolate || memory>>63 != 0 || wall>>63 != 0 {
		return Limits{}, Violation("bad limits")
	}
	l.Memory, l.Wall = int64(memory), time.Duration(wall)
	return l, nil
}

// Form is the form of a module's source.
type Form byte

// The forms.
const (
	FormCompiled   Form = 0 // an ES module that the engine runs unchanged; JSON becomes one, too
	FormTypeScript Form = 1
	FormJavaScript Form = 2
	FormJSON       Form = 3
)

// Module is source that an isolate may import.
type Module struct {
	Name   string // "main.ts", "lib/a.ts": normalised, without "./"
	Form   Form
	Source string
	Map    []byte // FormCompiled: its source map, if the receiver is to map positions
}

// Binding is a global (empty Specifier) or an export of a module that exists only in the isolate.
type Binding struct {
	Specifier string
	Name      string
	Func      bool   // a function of the host; HostCall names it by its index in Open.Bindings
	Value     []byte // encoded, unless Func
}

// Open starts an isolate.
type Open struct {
	Limits
	Main     string // KindRun: the module to run
	Fn       string // KindRun: the export to call
	Args     []byte // KindRun: an encoded array
	Modules  []Module
	Bindings []Binding
	Static   []byte // KindIsolate: an encoded object, the properties of state
	// Spent is what a compiled run has used of its Wall before it reaches its child.
	Spent time.Duration
}

// Compiled reports whether all modules are as the engine runs them.
func (o *Open) Compiled() bool {
	return !slices.ContainsFunc(o.Modules, func(m Module) bool { return m.Form != FormCompiled })
}

// Limits of an Open.
const (
	MaxModules  = 1000
	MaxBindings = 10_000
)

// Encode encodes an Open.
func (o *Open) Encode() ([]byte, error) {
	if len(o.Modules) > MaxModules {
		return nil, fmt.Errorf("%d modules: at most %d", len(o.Modules), MaxModules)
	}
	if len(o.Bindings) > MaxBindings {
		return nil, fmt.Errorf("%d globals and imports: at most %d", len(o.Bindings), MaxBindings)
	}
	size := len(o.Args) + len(o.Static)
	for _, m := range o.Modules {
		size += len(m.Source) + len(m.Map) + 64
	}
	b := o.Limits.Append(make([]byte, 0, size+256))
	b = appendText(b, o.Main)
	b = appendText(b, o.Fn)
	b = appendSpan(b, o.Args)
	b = binary.AppendUvarint(b, uint64(len(o.Modules)))
	for _, m := range o.Modules {
		b = appendText(append(b, byte(m.Form)), m.Name)
		b = appendText(b, m.Source)
	}
	b = binary.AppendUvarint(b, uint64(len(o.Bindings)))
	for _, g := range o.Bindings {
		b = appendText(appendBool(b, g.Func), g.Specifier)
		b = appendText(b, g.Name)
		b = appendSpan(b, g.Value)
	}
	b = appendSpan(b, o.Static)
	if o.Spent > 0 || slices.ContainsFunc(o.Modules, func(m Module) bool { return len(m.Map) > 0 }) {
		for _, m := range o.Modules {
			b = appendSpan(b, m.Map)
		}
		b = binary.AppendUvarint(b, uint64(max(o.Spent, 0)))
	}
	if len(b)+1 > MaxFrame {
		return nil, fmt.Errorf("source, modules and values take %d MiB together: at most %d MiB", len(b)>>20, MaxFrame>>20)
	}
	return b, nil
}

// ParseOpen decodes an Open.
func ParseOpen(b []byte) (*Open, error) {
	limits, err := ParseLimits(b)
	if err != nil {
		return nil, err
	}
	p := parser{r: value.NewReader(b[LimitsSize:])}
	o := &Open{Limits: limits, Main: p.text(), Fn: p.text(), Args: p.span()}
	for range p.count(MaxModules) {
		o.Modules = append(o.Modules, Module{Form: Form(p.byte()), Name: p.text(), Source: p.text()})
	}
	for range p.count(MaxBindings) {
		o.Bindings = append(o.Bindings, Binding{Func: p.bool(), Specifier: p.text(), Name: p.text(), Value: p.span()})
	}
	o.Static = p.span()
	if p.more() { // there are none from a manager, which sends sources, and none of isolates
		for i := range o.Modules {
			if m := p.span(); len(m) > 0 {
				o.Modules[i].Map = m
			}
		}
		o.Spent = time.Duration(min(p.uint(), math.MaxInt64))
	}
	return o, p.end("open")
}
