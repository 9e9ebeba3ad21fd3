package compile

import (
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Module compiles a module of a run as its form says; what is compiled already stays as it is. It compiles in this
// process, which may die of it: it is for the children of sandboxes, of every engine.
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
