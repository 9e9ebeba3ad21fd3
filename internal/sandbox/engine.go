package sandbox

import "fmt"

// Engine is the JavaScript engine of a sandbox's children.
type Engine string

// The engines. QuickJS is the default: it starts fast, enforces its limits exactly and needs no system calls. V8
// compiles to machine code, for code that computes for a long time. It runs in a separate Deno process.
const (
	QuickJS Engine = "quickjs"
	V8      Engine = "v8"
)

// Validate returns an error for an unknown engine.
func (e Engine) Validate() error {
	switch e {
	case "", QuickJS, V8:
		return nil
	}
	return fmt.Errorf("unknown engine %q: use %s or %s", string(e), QuickJS, V8)
}
