// Package codeexec runs code of definitions and builds the tools of one execution: a run, the firing of an effect, or a call from outside.
// An Execution has one isolate in the sandbox of its thread, which its Host opens when it is first needed.
package codeexec

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Definitions resolves the definitions that code and tools need while they run.
type Definitions interface {
	// RuntimeContext returns what the platform team configured for code in the sandboxes of a pool, or nil (TOL-04).
	RuntimeContext(ctx context.Context, namespace, pool string) (map[string]any, error)
	// CalledAgent returns the agent that is exposed as a tool under that name, or nil if there is none (AGT-03).
	CalledAgent(ctx context.Context, namespace, tool string) (*definition.CalledAgent, error)
}

// Sandboxes provides each thread with its sandbox.
type Sandboxes interface {
	// Acquire returns the thread's sandbox, and claims one from the pool if the thread has none.
	Acquire(ctx context.Context, thread *store.Thread, pool string) (sbx sandbox.Sandbox, release func(), err error)
	// Discard gives up the thread's sandbox after a failure.
	Discard(ctx context.Context, thread *store.Thread, sbx sandbox.Sandbox)
}

// Environment is what the executions of all threads share. All fields but Memory are required.
type Environment struct {
	Threads     *thread.Service
	Store       store.Store
	Definitions Definitions
	Sandboxes   Sandboxes
	Network     *outbound.Network
	MCP         *mcptool.Servers
	Clock       clock.Clock
	Log         logr.Logger
	// Schemas has the parameters that code of tools declares, by the digest of the code.
	Schemas *lru.Cache
	// Memory is what executions draw their values from; nil is without limit.
	Memory *membudget.Budget
	// Redact removes the secrets of a namespace from a text.
	Redact func(namespace, text string) string
	// Fault is called around outside calls.
	Fault func(point string)
}

// fault marks a point around an outside call, for crash tests.
func (e *Environment) fault(point string) { e.Fault(point) }
