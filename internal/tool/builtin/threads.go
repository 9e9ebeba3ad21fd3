package builtin

import (
	"context"

	"github.com/skein-dev/skein/internal/tool"
)

// threads returns the family that reads other threads (REL-04).
func threads(h *tool.Host) []tool.Tool {
	if h.Others == nil {
		return nil
	}
	return []tool.Tool{newTool("read_thread",
		"Reads another conversation, as Markdown. A long one is shortened to the messages that matter for the goal.",
		`{"type":"object","required":["thread","goal"],"additionalProperties":false,"properties":{
			"thread":{"type":"string","minLength":1,"maxLength":300,"description":"The other conversation: its name, or its id such as T-5928a90d-d53b-488f-a829-4e36442142ee"},
			"goal":{"type":"string","minLength":1,"maxLength":4000,"description":"What you want to know from it"},
			"from":{"type":"integer","minimum":0,"description":"Number of the message to read on from, one after the other; without it, the messages that matter for the goal"}}}`,
		func(ctx context.Context, _ tool.Call, a tool.ReadThread) tool.Result {
			text, err := h.Others.Read(ctx, a)
			if err != nil {
				return failure(err)
			}
			return tool.Success(text)
		})}
}

// handoff returns the family that hands the context of the conversation to a new thread (REL-03).
func handoff(h *tool.Host) []tool.Tool {
	if h.Others == nil || !h.Others.MayHandOff() {
		return nil
	}
	return []tool.Tool{newTool("handoff",
		"Starts a new conversation for a goal. It gets a summary of what matters in this one and the files that you name, and nothing else. This conversation stays as it is.",
		`{"type":"object","required":["goal"],"additionalProperties":false,"properties":{
			"goal":{"type":"string","minLength":1,"maxLength":16000,"description":"What the new conversation is to do"},
			"agent":{"type":"string","maxLength":253,"description":"The agent of the new conversation; that of this one when left out"},
			"files":{"type":"array","maxItems":10,"items":{"type":"string"},"description":"Paths of files of this conversation that the new one gets"},
			"comment":{"type":"string","maxLength":1000,"description":"A note for people on why the conversation goes on elsewhere"},
			"title":{"type":"string","maxLength":200,"description":"Title of the new conversation"}}}`,
		func(ctx context.Context, call tool.Call, a tool.HandOff) tool.Result {
			a.Cause = call.ID
			made, err := h.Others.HandOff(ctx, a)
			if err != nil {
				return failure(err)
			}
			return tool.SuccessJSON(made)
		})}
}
