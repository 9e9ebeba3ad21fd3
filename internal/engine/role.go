package engine

import (
	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// role is who acts in a run: the agent, the side of it whose turn it is, and the prompt that this side calls as a tool. Its methods
// are what follows from that alone. It belongs to the goroutine that executes the run.
type role struct {
	thread *store.Thread
	agent  *definition.Agent // nil in a run that ends without being executed, when it could not be resolved
	// next is the agent that the thread has now. It differs from the agent of the run after a handoff.
	next string
	// checkpoint is what the run keeps of itself. It says whose turn it is.
	checkpoint checkpoint.State
	// acting is the side that acts in place of the one whose turn it is; nil for none (see actAs).
	acting *definition.Side
	// frame is the called prompt that is at work; nil when the side itself is at work.
	frame *frame
}
