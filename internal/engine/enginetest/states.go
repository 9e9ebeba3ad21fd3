package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/modellimit"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/httptool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// State is a situation in which a run stays until it is ended from outside.
type State struct {
	Name string
	// Code: the state needs a sandbox.
	Code bool
	// Leaves: something else takes part, such as a server, and notices when the run no longer waits for it.
	Leaves bool
	// Children is the number of children of the thread that work in the state.
	Children int
	// Waits: the run is parked.
	Waits bool
	put   func(w *World, h *Held)
}

// StateAgent is the name of the agent of a State. All of its runs get into the state.
const StateAgent = "agent"

// Put prepares a world for a state. Call it before the first engine of the world is made, and close the Held that it
// returns.
func (s State) Put(w *World) *Held {
	h := &Held{arrived: make(chan struct{}, 64), gone: make(chan struct{}, 64)}
	loopback, err := outbound.ParseHosts([]string{"127.0.0.1"})
	if err != nil {
		panic(err)
	}
	w.Network = outbound.New(outbound.Policy{Private: loopback})
	s.put(w, h)
	return h
}

// In waits until a thread's run is in the state.
func (s State) In(ctx context.Context, w *World, h *Held, threadID string) error {
	arrived := h.arrived
	if s.Waits {
		arrived = nil
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-arrived:
			if s.Children == 0 {
				return nil
			}
			arrived = nil // the thread's own run is parked a moment later
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the run did not get into the state %q: %w", s.Name, context.Cause(ctx))
		}
		if s.Code {
			if v, err := w.Store.Value(ctx, threadID, "begun"); err == nil && string(v) == "true" {
				return nil
			}
		}
		if s.Waits || s.Children > 0 && arrived == nil {
			if r, err := w.Store.Run(ctx, threadID, ""); err == nil && r.Status == store.RunWaiting {
				return nil
			}
		}
	}
}

// Held holds up whatever a run in a state waits for, until the run no longer waits.
type Held struct {
	arrived, gone chan struct{}
	closers       []func()
}

// Gone returns a channel that receives a value each time that something held up is released.
func (h *Held) Gone() <-chan struct{} { return h.gone }

// Close ends the servers of a state.
func (h *Held) Close() {
	for _, c := range h.closers {
		c()
	}
}

// hold reports its caller as arrived, blocks until ctx ends, and reports it as gone.
func (h *Held) hold(ctx context.Context) error {
	h.arrived <- struct{}{}
	<-ctx.Done()
	h.gone <- struct{}{}
	return context.Cause(ctx)
}

// server starts an HTTP server that Close ends, and returns its URL.
func (h *Held) server(handler http.Handler) string {
	s := httptest.NewServer(handler)
	h.closers = append(h.closers, s.CloseClientConnections, s.Close)
	return s.URL
}

// States returns all states.
func States() []State {
	return []State{
		{Name: "a model that streams", Leaves: true, put: func(w *World, h *Held) {
			w.Models = &heldModels{Factory: w.Models, held: h, name: StateAgent}
			w.Definitions.Put(StateAgent)
		}},
		{Name: "a model that is to be asked again later", put: func(w *World, h *Held) {
			url := h.server(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Retry-After", "3600")
				http.Error(rw, `{"error":{"message":"busy"}}`, http.StatusTooManyRequests)
				h.arrived <- struct{}{}
			}))
			w.Definitions.Put(StateAgent, func(a *definition.Agent) {
				a.A.Model.Spec = skeinv1.ModelSpec{Provider: skeinv1.ProviderOpenAI, Model: "m", Endpoint: url, MaxRetries: ptr.To[int32](5), Timeout: &metav1.Duration{Duration: 2 * time.Hour}}
			})
		}},
		{Name: "the queue for a model's permit", put: func(w *World, h *Held) {
			w.Models = providers.NewFactory(nil).WithLimits(modellimit.New(&heldPermits{PermitStore: w.Store, held: h}, clock.RealClock{}))
			w.Definitions.Put(StateAgent, Script(Say("late")), func(a *definition.Agent) {
				a.A.Model.Spec.Limits = &skeinv1.ModelLimits{MaxConcurrent: 1}
			})
		}},
		{Name: "an HTTP tool", Leaves: true, put: func(w *World, h *Held) {
			url := h.server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = h.hold(r.Context()) }))
			request, err := httptool.Compile(&skeinv1.HTTPTool{URL: url}, httptool.Secrets{})
			if err != nil {
				panic(err)
			}
			w.Definitions.Put(StateAgent, calls("look"), toolOf(definition.Tool{ObjectName: "look", Name: "look", HTTP: request, Spec: skeinv1.ToolSpec{HTTP: &skeinv1.HTTPTool{URL: url}}}))
		}},
		{Name: "the tool of an MCP server", Leaves: true, put: func(w *World, h *Held) {
			s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			s.AddTool(&mcp.Tool{Name: "look", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, h.hold(ctx)
			})
			url := h.server(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
			w.Definitions.Put(StateAgent, calls("look"), toolOf(definition.Tool{
				ObjectName: "far", Name: "far", Spec: skeinv1.ToolSpec{MCP: &skeinv1.MCPServer{URL: url}},
				MCP: &mcptool.Server{Namespace: Namespace, Name: "far", UID: "far", Version: url, URL: url, Transport: skeinv1.MCPStreamable},
			}))
		}},
		{Name: "the wait for a sandbox", Leaves: true, put: func(w *World, h *Held) {
			w.Sandboxes = &heldSandboxes{held: h}
			w.Definitions.Put(StateAgent, calls("work"), codeTool("work", `export default async () => 'never';`))
		}},
		{Name: "code that never ends", Code: true, put: func(w *World, _ *Held) {
			w.Definitions.Put(StateAgent, calls("work"), codeTool("work", `export default async (state) => { await state.setValue('begun', true); for (;;) {} };`))
		}},
		{Name: "a hook before the answer", Code: true, put: func(w *World, _ *Held) {
			w.Definitions.Put(StateAgent, Script(Say("late")), hangingHook(skeinv1.HookBeforeCreateMessage, `async (state, m) => { if (m.role === 'assistant') { await state.setValue('begun', true); for (;;) await state.getValue('x'); } return m; }`))
		}},
		{Name: "a hook after a message", Code: true, put: func(w *World, _ *Held) {
			w.Definitions.Put(StateAgent, Script(Say("late")), hangingHook(skeinv1.HookAfterCreateMessage, `async (state, m) => { if (m.role === 'user') { await state.setValue('begun', true); for (;;) await state.getValue('x'); } }`))
		}},
		{Name: "a handler whose model streams", Leaves: true, put: func(w *World, h *Held) {
			w.Models = &heldModels{Factory: w.Models, held: h, name: "slow"}
			w.Definitions.Put(StateAgent, func(a *definition.Agent) {
				m := compiled("handler.ts", `import { createAgent } from '@agentuity/runtime';
import { streamText } from 'ai';
import { openai } from '@ai-sdk/openai';
export default createAgent('Slow', { handler: async (ctx, input) => streamText({ model: openai('slow'), prompt: 'x' }).textStream });`)
				*a.A = definition.Side{Name: "a", Handler: &definition.Handler{Module: m, Models: map[string]*definition.Model{"openai/slow": {Name: "slow", Version: "1", Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}}}}}
			})
		}},
		{Name: "a prompt that was called as a tool", Leaves: true, put: func(w *World, h *Held) {
			w.Models = &heldModels{Factory: w.Models, held: h, name: "summarise"}
			w.Definitions.Put(StateAgent, CallsPrompt("summarise", skeinv1.PromptTool{}), Script(Call("summarise", map[string]any{"message": "x"})))
		}},
		{Name: "an agent that was asked", Leaves: true, Children: 1, put: func(w *World, h *Held) {
			w.Models = &heldModels{Factory: w.Models, held: h, name: "asked"}
			w.Definitions.Put("asked")
			w.Definitions.Put(StateAgent, Calls(definition.CalledAgent{ObjectName: "asked", Ask: true, Description: "knows"}), Script(Call("asked", map[string]any{"message": "x"})))
		}},
		{Name: "an approval", Waits: true, put: func(w *World, _ *Held) {
			w.Definitions.Put(StateAgent, Approved(skeinv1.BuiltinKV, 0), Script(Call("set_value", map[string]any{"key": "k", "value": 1})))
		}},
		{Name: "a time", Waits: true, put: func(w *World, _ *Held) {
			w.Definitions.Put(StateAgent, Builtin(skeinv1.BuiltinWait), Script(Call("wait", map[string]any{"delayMs": time.Hour.Milliseconds()})))
		}},
	}
}

// calls returns a change of an agent whose model calls a tool without arguments.
func calls(name string) func(*definition.Agent) { return Script(Call(name, map[string]any{})) }

func toolOf(t definition.Tool) func(*definition.Agent) {
	return func(a *definition.Agent) {
		t.Spec.Description = t.ObjectName
		t.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"type":"object"}`)}
		a.A.Tools = append(a.A.Tools, t)
		a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Name: t.ObjectName})
	}
}

func codeTool(name, source string) func(*definition.Agent) {
	return toolOf(definition.Tool{ObjectName: name, Name: name, Module: compiled("tool.ts", source), Digest: name + source})
}

func hangingHook(name skeinv1.HookName, source string) func(*definition.Agent) {
	return func(a *definition.Agent) {
		m := compiled(string(name)+".ts", "import { defineHook } from '@standardagents/builder';\nexport default defineHook('"+string(name)+"', "+source+");")
		a.A.Hooks = map[skeinv1.HookName]*definition.Hook{name: {Name: name, Owner: "Agent agent", Module: m, Timeout: time.Hour}}
	}
}

func compiled(file, source string) sandbox.Module {
	m, failed := compile.Compile(file, source, sandbox.TypeScript)
	if failed != nil {
		panic(failed)
	}
	return m
}

// heldModels makes clients of models, of which one stops in the middle of its answer.
type heldModels struct {
	model.Factory
	held *Held
	name string
}

// Client implements model.Factory.
func (m *heldModels) Client(c model.Config) (model.Client, error) {
	if c.Name == m.name {
		return &heldModel{m.held}, nil
	}
	return m.Factory.Client(c)
}

type heldModel struct{ held *Held }

// Stream implements model.Client.
func (m *heldModel) Stream(ctx context.Context, _ model.Request, emit func(model.Delta)) (*model.Response, error) {
	emit(model.Delta{Text: "half an "})
	return nil, m.held.hold(ctx)
}

// heldPermits never grants a permit, because another call has the only one.
type heldPermits struct {
	store.PermitStore
	held *Held
	seen sync.Map // ids of calls, since each asks repeatedly
}

// TakePermit implements modellimit.Permits.
func (p *heldPermits) TakePermit(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error) {
	if _, err := p.PermitStore.TakePermit(ctx, store.PermitRequest{Namespace: r.Namespace, Model: r.Model, ID: "of another", Concurrent: 1, TTL: time.Hour}); err != nil {
		return store.PermitAnswer{}, err
	}
	answer, err := p.PermitStore.TakePermit(ctx, r)
	if err == nil && answer.Granted {
		err = errors.New("a permit was granted although another call has the only one")
	}
	if _, again := p.seen.LoadOrStore(r.ID, true); !again {
		p.held.arrived <- struct{}{}
	}
	return answer, err
}

// heldSandboxes never provides a sandbox.
type heldSandboxes struct{ held *Held }

// Acquire implements ports.Sandboxes.
func (s *heldSandboxes) Acquire(ctx context.Context, _ *store.Thread, _ string) (sandbox.Sandbox, func(), error) {
	return nil, nil, s.held.hold(ctx)
}

// Discard implements ports.Sandboxes.
func (*heldSandboxes) Discard(context.Context, *store.Thread, sandbox.Sandbox) {}
