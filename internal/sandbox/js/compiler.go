package js

import (
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Compiler is what code needs that does not come compiled. This package does not import it, so that a program can do without.
type Compiler struct {
	// Compile compiles a module of a run according to its form.
	Compile func(protocol.Module) (sandbox.Module, *sandbox.Error)
	// InUse returns how many bytes of memory the compiler's process uses, apart from the engine's heap.
	InUse func() int64
}
