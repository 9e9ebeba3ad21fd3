package apiserver

import (
	"github.com/skein-dev/skein/internal/apiserver/approvals"
	"github.com/skein-dev/skein/internal/apiserver/code"
	"github.com/skein-dev/skein/internal/apiserver/effects"
	"github.com/skein-dev/skein/internal/apiserver/endpoints"
	"github.com/skein-dev/skein/internal/apiserver/family"
	"github.com/skein-dev/skein/internal/apiserver/messages"
	"github.com/skein-dev/skein/internal/apiserver/runs"
	"github.com/skein-dev/skein/internal/apiserver/search"
	"github.com/skein-dev/skein/internal/apiserver/threads"
	"github.com/skein-dev/skein/internal/apiserver/tools"
)

// Engine is the part of the engine that the runtime API uses.
type Engine interface {
	threads.Engine
	code.Engine
	External
}

// External is what the engine does for users of ThreadState outside a run.
type External interface {
	messages.Engine
	tools.Engine
	family.Engine
	family.HandoffEngine
	endpoints.Engine
	runs.Engine
	approvals.Engine
	search.Engine
}

// Effects is the port for scheduled effects.
type Effects = effects.Effects
