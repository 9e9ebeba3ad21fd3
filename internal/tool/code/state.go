package code

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/skein-dev/skein/api/runtime/values"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/tool"
)

// State serves the calls of `state` from the definition code of one execution. mu guards times, streams and streamN.
type State struct {
	host *tool.Host
	// edited is called when a message was changed or removed, so that a run reads its conversation again.
	edited func()

	context any // initial value of state.context
	// asker is the State whose code makes the call when host is another thread than its own; nil otherwise.
	asker *State

	mu      sync.Mutex
	times   map[string]int // how often an invocation called the same method with the same arguments
	streams map[int64]*stream
	streamN int64
}

// NewState returns a server of `state`. edited may be nil.
func NewState(h *tool.Host, edited func()) *State {
	if edited == nil {
		edited = func() {}
	}
	return &State{host: h, edited: edited, times: map[string]int{}}
}

// Properties that code does not see: the initial content of the scopes of state, the names of the methods, and the
// initial state.context.
const (
	scopesProperty  = "$scopes"
	methodsProperty = "$methods"
	contextProperty = "$context"
)

// Static returns the plain properties of `state` (THR-02), and under "name()" the results of synchronous methods.
func (s *State) Static(ctx context.Context) (map[string]any, error) {
	t := s.host.Thread
	arguments := any(map[string]any{})
	if len(t.Arguments) > 0 {
		if err := json.Unmarshal(t.Arguments, &arguments); err != nil {
			return nil, fmt.Errorf("the thread's arguments are not valid JSON: %w", err)
		}
	}
	resumable, err := s.host.Children.Resumable(ctx)
	if err != nil {
		return nil, err
	}
	children := make([]any, 0, len(resumable))
	for _, c := range resumable {
		children = append(children, c)
	}
	static := map[string]any{
		"threadId": t.ID, "agentId": t.Agent, "userId": orNull(t.UserID), "createdAt": t.CreatedAt,
		"arguments": arguments, "children": children, "terminated": timeOrNull(t.TerminatedAt), "execution": nil,
		methodsProperty: Methods(),
	}
	if s.asker == nil {
		static[scopesProperty] = scopesStatic(t, s.host.Session)
		if s.context != nil {
			static[contextProperty] = s.context
		}
	}
	// These methods are synchronous, so their results are provided in advance.
	for method, kind := range map[string]string{"getAgentNames()": "agent", "getPromptNames()": "prompt", "getModelNames()": "model"} {
		if static[method], err = s.host.Definitions.Names(ctx, kind); err != nil {
			return nil, err
		}
	}
	if s.host.Execution != nil {
		static["execution"] = s.host.Execution.Now()
	}
	return static, nil
}

// Serve is the host function of an isolate: it handles state.<method>(…args).
func (s *State) Serve(ctx context.Context, invocation, method string, args []any) (any, error) {
	serve, ok := methods[method]
	if !ok {
		serve, ok = internalMethods[method]
	}
	if !ok {
		return nil, &sandbox.Error{Name: "TypeError", Message: fmt.Sprintf("state.%s is not a function", method)}
	}
	if err := s.admit(method); err != nil {
		return nil, err
	}
	return serve(ctx, &stateCall{State: s, invocation: invocation, method: method, args: args})
}

// SetContext sets the initial state.context, an object. Call it before the isolate is opened.
func (s *State) SetContext(v any) { s.context = v }

// Methods returns the sorted names of the methods of ThreadState that `state` has.
func Methods() []string { return slices.Sorted(maps.Keys(methods)) }

// stateCall is one call of a method of `state`.
type stateCall struct {
	*State
	invocation string
	method     string
	args       []any
}

// key derives an idempotency key from the invocation, the method, its arguments and how often these were used before,
// so that a repeated invocation repeats its keys.
func (c *stateCall) key() string {
	args, err := value.ToJSON(c.args)
	if err != nil { // a function is among them: the other parts distinguish calls well enough
		args = json.RawMessage(fmt.Sprint(len(c.args)))
	}
	h := sha256.New()
	parts := []string{c.invocation, c.method, string(args)}
	counts := c.State
	if c.asker != nil {
		parts, counts = append(parts, c.host.Thread.ID), c.asker
	}
	for _, part := range parts {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	digest := hex.EncodeToString(h.Sum(nil))[:32]
	counts.mu.Lock()
	counts.times[digest]++
	n := counts.times[digest]
	counts.mu.Unlock()
	return fmt.Sprintf("%s-%d", digest, n)
}

func (c *stateCall) wrong(i int, want string) error {
	return &sandbox.Error{Name: "TypeError", Message: fmt.Sprintf("state.%s: argument %d must be %s", c.method, i+1, want)}
}

// arg returns an argument; nil when it is missing, undefined or null.
func (c *stateCall) arg(i int) any {
	if i >= len(c.args) {
		return nil
	}
	if (c.args[i] == value.Undefined{}) {
		return nil
	}
	return c.args[i]
}

// text reads a required string.
func (c *stateCall) text(i int, name string) (string, error) {
	s, ok := c.arg(i).(string)
	if !ok || s == "" {
		return "", c.wrong(i, "the "+name+", a string that is not empty")
	}
	return s, nil
}

// optionalText reads an optional string.
func (c *stateCall) optionalText(i int, name string) (string, error) {
	switch v := c.arg(i).(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	}
	return "", c.wrong(i, "the "+name+", a string")
}

// into decodes an optional object into a struct with JSON tags.
func (c *stateCall) into(i int, what string, dst any) error {
	v := c.arg(i)
	if v == nil {
		return nil
	}
	if _, ok := v.(map[string]any); !ok {
		return c.wrong(i, what+", an object")
	}
	if err := value.Into(v, dst); err != nil {
		return c.wrong(i, what+": "+err.Error())
	}
	return nil
}

// json returns a value as JSON; nil when it is missing.
func (c *stateCall) json(i int, what string) (json.RawMessage, error) {
	v := c.arg(i)
	if v == nil {
		return nil, nil
	}
	raw, err := value.ToJSON(v)
	if err != nil {
		return nil, c.wrong(i, what+": "+err.Error())
	}
	return raw, nil
}

// exactly returns the value for a key as JSON, and refuses a value that JSON would change; nil when it is missing.
func (c *stateCall) exactly(i int, key string) (json.RawMessage, error) {
	v := c.arg(i)
	if v == nil {
		return nil, nil
	}
	raw, err := values.JSON(v)
	if err != nil {
		name := c.method // the name that code uses: state.setValue, or kv.set of a handler's ctx
		if !strings.Contains(name, ".") {
			name = "state." + name
		}
		return nil, &sandbox.Error{Name: "TypeError", Message: fmt.Sprintf("%s: the value for %q is not JSON: %v", name, key, err)}
	}
	return raw, nil
}

// object returns an object as JSON; {} when it is missing.
func (c *stateCall) object(i int, what string) (json.RawMessage, error) {
	v := c.arg(i)
	if v == nil {
		return json.RawMessage("{}"), nil
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, c.wrong(i, what+", an object")
	}
	return c.json(i, what)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func timeOrNull(micros int64) any {
	if micros == 0 {
		return nil
	}
	return micros
}
