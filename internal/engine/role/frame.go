package role

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
)

// MetadataPromptCall is the metadata key, on the messages of a called prompt, of the id of the call that the prompt
// answers.
const MetadataPromptCall = "prompt_call_id"

// Frame is a called prompt at work. Like the run, it belongs to the goroutine that executes the run.
type Frame struct {
	Side      *definition.Side
	Call      store.ToolCall
	Arguments json.RawMessage
	Depth     int // depth of its messages
	Parent    *store.Message
	Outer     *transcript.Conversation // the conversation that the caller reads
	Path      []string                 // the called prompts up to this one, outermost first, without the side's own prompt
	// Code holds the contexts of code that waits for the answer. It is empty when only the conversation waits, which
	// may be parked.
	Code []context.Context
}

// Depth returns the depth of the messages that the run writes.
func (r *Role) Depth() int {
	if r.Frame == nil {
		return 0
	}
	return r.Frame.Depth
}

// Arguments returns the arguments of the thread or, in a called prompt, of the call.
func (r *Role) Arguments() json.RawMessage {
	if r.Frame == nil {
		return r.Thread.Arguments
	}
	return r.Frame.Arguments
}

// CallID returns the id of the call that the called prompt at work answers, or "".
func (r *Role) CallID() string {
	if r.Frame == nil {
		return ""
	}
	return r.Frame.Call.ID
}

// Place sets the depth, parent and call of a message that a called prompt writes.
func (r *Role) Place(m *store.Message) {
	if r.Frame == nil {
		return
	}
	m.Depth = r.Frame.Depth
	if r.Frame.Parent != nil {
		m.ParentID = r.Frame.Parent.ID
	}
	metadata := maps.Clone(m.Metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata[MetadataPromptCall] = r.Frame.Call.ID
	m.Metadata = metadata
}

// WithChat returns what a called prompt reads. When it includes the caller's conversation, the messages from before
// the step that made the call come first.
func (r *Role) WithChat(own *transcript.Conversation) *transcript.Conversation {
	f := r.Frame
	if f == nil || !isSet(f.Side.Prompt.Spec.IncludeChat) {
		return own
	}
	tools := isSet(f.Side.Prompt.Spec.IncludePastTools)
	out, side := transcript.New(), r.Agent.Side(r.State.Turn.Side)
	if r.Acting != nil {
		side = r.Acting
	}
	for _, m := range transcript.ReplaceBySummary(transcript.WithoutSummaries(f.Outer), r.SummaryOf(f.Outer, side)).Messages {
		if f.Parent != nil && m.ID == f.Parent.ID {
			break
		}
		if !tools {
			if m.Role == store.RoleTool || m.Role == store.RoleAssistant && transcript.ContentOf(&m) == "" {
				continue
			}
			m.ToolCalls = nil
		}
		out.Append(m)
	}
	for _, m := range own.Messages {
		out.Append(m)
	}
	return out
}

// CodeWaits reports whether code waits for what the run is doing.
func (r *Role) CodeWaits() bool { return r.Frame != nil && len(r.Frame.Code) > 0 }

// IsDeserted reports whether code that waits for what the run is doing has ended.
func (r *Role) IsDeserted() bool {
	if r.Frame == nil {
		return false
	}
	for _, life := range r.Frame.Code {
		if life.Err() != nil {
			return true
		}
	}
	return false
}

// WhileWanted returns a context that ends with ctx, or as soon as code that waits for what the run is doing has
// ended.
func (r *Role) WhileWanted(ctx context.Context) (context.Context, func()) {
	if r.Frame == nil {
		return ctx, func() {}
	}
	return codeexec.WithLives(ctx, r.Frame.Code)
}

func isSet(b *bool) bool { return b != nil && *b }

// PromptCallOf returns the id of the call of the prompt to which a message belongs, or "".
func PromptCallOf(m *store.Message) string {
	id, _ := m.Metadata[MetadataPromptCall].(string)
	return id
}
