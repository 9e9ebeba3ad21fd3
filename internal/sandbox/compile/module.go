package compile

import (
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Module compiles a module of a run according to its form. Compiled modules stay as they are. It compiles in this
// process, which the source may crash, so it is only for processes that may end: children of sandboxes, of every engine, and compilers.
func Module(m protocol.Module) (sandbox.Module, *sandbox.Error) {
	switch m.Form {
	case protocol.FormTypeScript:
		return Transform(m.Name, m.Source, sandbox.TypeScript)
	case protocol.FormJavaScript:
		return Transform(m.Name, m.Source, sandbox.JavaScript)
	case protocol.FormJSON:
		return JSON(m.Name, m.Source)
	}
	return sandbox.Module{Code: m.Source, Filename: m.Name}, nil
}
