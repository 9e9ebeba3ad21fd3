package request

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/thread"
)

// Keys in the metadata of an answer that describe how it was made.
const (
	// metadataSession is the provider's conversation that the answer belongs to: an object with id, of, messages,
	// digest and left_out (RUN-06). It is in the log with the answer or not at all. After a failure the conversation
	// of the previous answer stays valid.
	metadataSession = thread.MetadataSession
	// metadataModel is the name of the Model that answered, when it was a fallback.
	metadataModel = model.MetadataModel
	// metadataFailures lists why the Models before the fallback did not answer.
	metadataFailures = "model_failures"
	// metadataFinish is the reason why the answer ended, when the model neither finished nor asked for calls; usually
	// "length".
	metadataFinish = "finish_reason"
	// metadataRefused marks an answer with which the model refuses.
	metadataRefused = "refused"
)

// Continue makes a request continue the provider's conversation when that conversation knows exactly what the log
// says. With another model, agent or thread, or after a message was changed or removed, a new conversation begins.
func (k *Maker) Continue(req *model.Request, m *definition.Model, conv *transcript.Conversation) {
	answers := conv.AnswersInSessions()
	if len(answers) == 0 {
		return
	}
	of := k.sessionOf(m)
	for _, i := range slices.Backward(answers) {
		s, _ := conv.Messages[i].Metadata[metadataSession].(map[string]any)
		if k.mayContinueImported(m) {
			if id, agent := thread.ImportedSession(conv.Messages[:i+1]); id != "" && agent == k.role.Agent.Name {
				continueImported(req, id)
				return
			}
		}
		if s["of"] != of {
			continue
		}
		id, _ := s["id"].(string)
		count, _ := s["messages"].(float64)
		without, _ := s["left_out"].(float64)
		kept := model.Without(req.Messages, int(without))
		if n := int(count); id != "" && n > 0 && n <= len(kept) && s["digest"] == digestOf(kept[:n]) {
			req.Session, req.SessionMessages, req.SessionLeftOut = id, n, int(without)
		}
		return
	}
}

// mayContinueImported reports whether the side in use may continue a provider's conversation that came with an import.
func (k *Maker) mayContinueImported(m *definition.Model) bool {
	return k.role.Frame == nil && !k.role.Agent.Dual() && keepsSessions(&m.Spec)
}

// keepsSessions reports whether the provider of a Model keeps conversations. By default only OpenAI's own server for
// the responses API does: that is a Model without an endpoint. For other servers set spec.sessions.
func keepsSessions(m *skeinv1.ModelSpec) bool {
	if m.Sessions != nil {
		return *m.Sessions
	}
	return m.API == skeinv1.APIResponses && m.Endpoint == ""
}

// continueImported makes a request continue an imported conversation. Messages after the answer that the conversation
// ends with are new to the provider.
func continueImported(req *model.Request, id string) {
	for i := range req.Messages {
		s, _ := req.Messages[i].Metadata[metadataSession].(map[string]any)
		if req.Messages[i].Role == model.RoleAssistant && s["id"] == id {
			req.Session, req.SessionMessages = id, i+1
		}
	}
}

// AnswerMetadata returns the metadata of an answer.
func (k *Maker) AnswerMetadata(req *model.Request, m *definition.Model, res *model.Response) map[string]any {
	out := maps.Clone(res.Metadata)
	set := func(key string, value any) {
		if out == nil {
			out = map[string]any{}
		}
		out[key] = value
	}
	if res.Session != "" {
		read, without := req.Messages, 0
		if res.Trimmed != nil {
			read, without = res.Read, res.Trimmed.LeftOut
		}
		known := slices.Concat(read, []model.Message{{Role: model.RoleAssistant, Content: res.Content, ToolCalls: res.ToolCalls}})
		set(metadataSession, map[string]any{"id": res.Session, "of": k.sessionOf(m), "messages": float64(len(known)), "digest": digestOf(known), "left_out": float64(without)})
	}
	if res.Model != "" {
		set(metadataModel, res.Model)
		failures := make([]any, 0, len(res.Failures))
		for _, f := range res.Failures {
			failures = append(failures, clip.Text(k.Redacted(f), runlog.MaxMessage))
		}
		set(metadataFailures, failures)
	}
	switch res.FinishReason {
	case "", "stop", "tool_calls":
	default:
		set(metadataFinish, res.FinishReason)
	}
	if res.Refused {
		set(metadataRefused, true)
	}
	return out
}

// sessionOf returns the digest that identifies the participants of a provider's conversation. The version of the
// Model covers its endpoint and key.
func (k *Maker) sessionOf(m *definition.Model) string {
	return digest(k.role.Thread.ID, k.role.Agent.Name, k.role.Side().Name, m.Name, m.Version)
}

// digestOf returns a digest of what a model reads of messages. It leaves out the system prompt at the front, which
// every call sends anew.
func digestOf(messages []model.Message) string {
	if len(messages) > 0 && messages[0].Role == model.RoleSystem {
		messages = messages[1:]
	}
	type said struct {
		Role        model.Role
		Content     string
		ToolCalls   []model.ToolCall `json:",omitempty"`
		ToolCallID  string           `json:",omitempty"`
		Attachments []string         `json:",omitempty"`
		Images      []string         `json:",omitempty"`
	}
	all := make([]said, 0, len(messages))
	for _, m := range messages {
		s := said{Role: m.Role, Content: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Attachments: m.Attachments}
		for _, i := range m.Images {
			s.Images = append(s.Images, i.MimeType+" "+i.Detail)
		}
		all = append(all, s)
	}
	text, _ := json.Marshal(all) // strings only: cannot fail
	return digest(string(text))
}

// digest returns a short digest of texts. It distinguishes texts and is no protection against forgery.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		h.Write([]byte(t))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
