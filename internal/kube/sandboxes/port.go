// Package sandboxes implements the engine's port to sandboxes: with pods that threads claim from a SandboxPool, and
// with local processes.
package sandboxes

import "github.com/skein-dev/skein/internal/engine/ports"

// Port is the engine's port, with a method for the thread controller.
type Port interface {
	ports.Sandboxes
	// Forget drops the sandbox of a deleted thread, of which no code runs any more. It does not block.
	Forget(threadID string)
}
