package apiserver

import (
	"github.com/skein-dev/skein/internal/engine"
)

// Engine is the part of the engine that the runtime API uses.
type Engine interface {
	lifeEngine
	codeEngine
	Outside
}

// Outside is what the engine does for users of ThreadState outside a run.
type Outside interface {
	messageEngine
	toolEngine
	familyEngine
	endpointEngine
	runEngine
	approvalEngine
	searchEngine
}

// Effects is the port for scheduled effects.
type Effects = engine.Effects
