package sandbox

import "fmt"

// Engine is the JavaScript engine that a sandbox's children have.
type Engine string

// The engines. QuickJS is the default: it starts fast, keeps its limits exactly and needs no system calls. V8 compiles
// to machine code, for code that computes for long; it runs in a Deno process of its own.
const (
	QuickJS Engine = "quickjs"
	V8      Engine = "v8"
)

// Validate says whether there is such an engine.
func (e Engine) Validate() error {
	switch e {
	case "", QuickJS, V8:
		return nil
	}
	return fmt.Errorf("there is no engine %q: use %s or %s", string(e), QuickJS, V8)
}
