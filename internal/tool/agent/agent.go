// Package agent implements agents as tools of other agents (TOL-02). A call either hands the conversation over to the
// agent (AGT-03), or asks the agent in a thread of its own (AGT-04).
package agent

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
)

// Spec describes an agent as a tool.
type Spec struct {
	Name        string // name that the model calls
	Agent       string // name of the Agent object
	Description string
	// Ask gives the agent a thread of its own. Otherwise the conversation is handed over to it.
	Ask bool
	// Arguments is the JSON Schema of the arguments that threads of the agent need; nil for any object.
	Arguments json.RawMessage
	// TTLAfterFinished and Retain say what becomes of the thread of an agent that was asked.
	TTLAfterFinished *metav1.Duration
	Retain           skeinv1.ChildRetention
	// Hidden keeps the tool from being shown to the model at present.
	Hidden bool
}

// New returns the tool.
func New(s Spec, h *tool.Host) tool.Tool { return &agentTool{spec: s, host: h} }

type agentTool struct {
	spec Spec
	host *tool.Host
}

// Definition implements tool.Tool.
func (t *agentTool) Definition() tool.Definition {
	d := tool.Definition{Name: t.spec.Name, Description: t.spec.Description, Hidden: t.spec.Hidden, Parameters: json.RawMessage(handoffSchema)}
	if t.spec.Ask {
		d.Parameters = t.askSchema()
	}
	return d
}

const handoffSchema = `{"type":"object","properties":{
	"message":{"type":"string","description":"What the other agent should know and the conversation does not say"}}}`

func (t *agentTool) askSchema() json.RawMessage {
	arguments := any(map[string]any{"type": "object", "description": "Arguments that the agent keeps for its whole life"})
	required := []string{"message"}
	if len(t.spec.Arguments) > 0 {
		arguments, required = t.spec.Arguments, append(required, "arguments")
	}
	schema, _ := json.Marshal(map[string]any{ // strings, and a schema that was JSON, cannot fail
		"type": "object", "required": required, "additionalProperties": false,
		"properties": map[string]any{
			"message":     map[string]any{"type": "string", "minLength": 1, "description": "The task, with all that the agent must know: it does not see this conversation"},
			"attachments": map[string]any{"type": "array", "maxItems": 100, "items": map[string]any{"type": "string"}, "description": "Paths of files of this conversation to hand over"},
			"arguments":   arguments,
		},
	})
	return schema
}

// Call implements tool.Tool.
func (t *agentTool) Call(ctx context.Context, call tool.Call) tool.Result {
	if t.spec.Ask {
		return t.ask(ctx, call)
	}
	if err := t.host.Handoffs.Check(ctx, t.spec.Agent); err != nil {
		return tool.Failure(err.Error())
	}
	return tool.Result{
		Status: tool.StatusSuccess, Handoff: t.spec.Agent,
		Content: "The conversation passes to the agent " + t.spec.Agent + ", which goes on from here.",
	}
}

// ask starts a child that works on the message, and returns a result for which the run waits until the child has ended.
func (t *agentTool) ask(ctx context.Context, call tool.Call) tool.Result {
	var args struct {
		Message     string          `json:"message"`
		Attachments []string        `json:"attachments"`
		Arguments   json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(call.Arguments, &args); err != nil { // cannot happen: the schema has refused it already
		return tool.Failure("the arguments cannot be read: " + err.Error())
	}
	child, err := t.host.Children.Create(ctx, tool.ChildRequest{
		Cause: call.ID, Message: args.Message, Arguments: args.Arguments, Attachments: args.Attachments,
		Kind: skeinv1.AgentSubagent{
			Name: t.spec.Name, AgentRef: skeinv1.LocalRef{Name: t.spec.Agent}, Description: t.spec.Description,
			Blocking: true, ParentCommunication: skeinv1.CommunicationImplicit,
			TTLAfterFinished: t.spec.TTLAfterFinished, Retain: t.spec.Retain,
		},
	})
	if err != nil {
		return tool.Failure(err.Error())
	}
	return tool.Result{Wait: &tool.Wait{Reference: child.Reference, ThreadID: child.ThreadID}}
}
