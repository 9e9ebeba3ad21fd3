package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
)

// subagents returns the family for the thread's children (SUB-03). When the agent lists no kinds there is no subagent_create, and no tool at
// all while the thread has no children: others may attach some. subagent_create is hidden while every kind has reached its maximum of living
// children. The registry is read from a cache.
func subagents(ctx context.Context, h *tool.Host) ([]tool.Tool, error) {
	kinds, err := h.Children.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	var out []tool.Tool
	if len(kinds) > 0 {
		living, err := h.Children.Living(ctx)
		if err != nil {
			return nil, fmt.Errorf("count the subagents: %w", err)
		}
		out = append(out, createTool(h, kinds, len(creatable(kinds, living)) == 0))
	} else if registry, err := h.Children.List(ctx); len(registry) == 0 || err != nil {
		return nil, err
	}
	out = append(out, listTool(h))
	takesMessages := slices.ContainsFunc(kinds, func(k skeinv1.AgentSubagent) bool { return k.Resumable })
	if !takesMessages {
		resumable, err := h.Children.Resumable(ctx)
		if err != nil {
			return nil, err
		}
		takesMessages = len(resumable) > 0
	}
	if takesMessages {
		out = append(out, messageTool(h))
	}
	return out, nil
}

// creatable returns the kinds that have not reached their maximum of living children.
func creatable(kinds []skeinv1.AgentSubagent, living map[string]int) []skeinv1.AgentSubagent {
	var open []skeinv1.AgentSubagent
	for _, k := range kinds {
		if k.MaxInstances <= 0 || living[k.Name] < int(k.MaxInstances) {
			open = append(open, k)
		}
	}
	return open
}

func createTool(h *tool.Host, kinds []skeinv1.AgentSubagent, hidden bool) tool.Tool {
	names := make([]string, 0, len(kinds))
	var about strings.Builder
	about.WriteString("Starts a subagent that works on a task in a conversation of its own. The subagents are:")
	for _, k := range kinds {
		names = append(names, k.Name)
		fmt.Fprintf(&about, "\n- %s: %s", k.Name, k.Description)
		if k.Blocking {
			about.WriteString(" (its result is the result of this call)")
		} else {
			about.WriteString(" (works on its own and reports later)")
		}
	}
	schema, _ := json.Marshal(map[string]any{ // marshalling strings cannot fail
		"type": "object", "required": []string{"agent", "message"}, "additionalProperties": false,
		"properties": map[string]any{
			"agent":       map[string]any{"type": "string", "enum": names, "description": "Which subagent to start"},
			"message":     map[string]any{"type": "string", "minLength": 1, "description": "The task, with all that the subagent must know: it does not see this conversation"},
			"name":        map[string]any{"type": "string", "maxLength": 500, "description": "A title for this task"},
			"attachments": map[string]any{"type": "array", "maxItems": 100, "items": map[string]any{"type": "string"}, "description": "Paths of files of this conversation to hand over"},
			"arguments":   map[string]any{"type": "object", "description": "Arguments that the subagent keeps for its whole life"},
		},
	})
	create := newTool("subagent_create", about.String(), string(schema),
		func(ctx context.Context, call tool.Call, a createArgs) tool.Result {
			i := slices.IndexFunc(kinds, func(k skeinv1.AgentSubagent) bool { return k.Name == a.Agent })
			if i < 0 { // cannot happen: the schema's enum has refused it already
				return tool.Failure("there is no subagent " + a.Agent)
			}
			child, err := h.Children.Create(ctx, tool.ChildRequest{
				Cause: call.ID, Kind: kinds[i], Title: a.Name, Message: a.Message, Arguments: a.Arguments, Attachments: a.Attachments,
			})
			if err != nil {
				return failure(err)
			}
			return childResult(child)
		})
	create.definition.Hidden = hidden
	return create
}

func messageTool(h *tool.Host) tool.Tool {
	return newTool("subagent_message", "Sends a message to a subagent that was started before and is still there.",
		`{"type":"object","required":["reference","message"],"additionalProperties":false,"properties":{
			"reference":{"type":"string","minLength":1,"description":"The reference that subagent_create gave, or one of subagent_list"},
			"message":{"type":"string","minLength":1},
			"attachments":{"type":"array","maxItems":100,"items":{"type":"string"},"description":"Paths of files of this conversation to hand over"}}}`,
		func(ctx context.Context, call tool.Call, a messageArgs) tool.Result {
			child, err := h.Children.Message(ctx, tool.ChildMessage{
				Cause: call.ID, Reference: a.Reference, Message: a.Message, Attachments: a.Attachments,
			})
			if err != nil {
				return failure(err)
			}
			return childResult(child)
		})
}

// childResult returns the child's entry, or a wait for the child when it is blocking.
func childResult(child *skeinv1.ChildStatus) tool.Result {
	if child.Blocking {
		return tool.Result{Wait: &tool.Wait{Reference: child.Reference, ThreadID: child.ThreadID}}
	}
	return tool.SuccessJSON(map[string]any{"reference": child.Reference, "name": child.Name, "status": child.Status})
}

type createArgs struct {
	Agent       string          `json:"agent"`
	Message     string          `json:"message"`
	Name        string          `json:"name"`
	Attachments []string        `json:"attachments"`
	Arguments   json.RawMessage `json:"arguments"`
}

type messageArgs struct {
	Reference   string   `json:"reference"`
	Message     string   `json:"message"`
	Attachments []string `json:"attachments"`
}
