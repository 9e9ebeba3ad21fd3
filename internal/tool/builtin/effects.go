package builtin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skein-dev/skein/internal/tool"
)

// effects returns the family that schedules effects (EFF-01).
func effects(h *tool.Host) []tool.Tool {
	return []tool.Tool{
		newTool("schedule_effect", "Schedules an effect: code that runs apart from this conversation, once, after a delay.",
			`{"type":"object","required":["name"],"additionalProperties":false,"properties":{
				"name":{"type":"string","pattern":"^[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)?$","description":"Name of the effect, or package/effect"},
				"args":{"type":"object","description":"Arguments for it"},
				"delayMs":{"type":"number","minimum":0,"maximum":31536000000,"description":"The delay in milliseconds: a number from 0, which is now and the default, to a year"}}}`,
			func(ctx context.Context, call tool.Call, a scheduleArgs) tool.Result {
				id, err := h.Effects.Schedule(ctx, call.ID, a.Name, a.Args, time.Duration(a.DelayMs*float64(time.Millisecond)))
				if err != nil {
					return failure(err)
				}
				return tool.SuccessJSON(map[string]any{"id": id, "name": a.Name, "delayMs": a.DelayMs})
			}),
		newTool("list_effects", "Lists the scheduled effects of this conversation that have not fired yet.",
			`{"type":"object","additionalProperties":false,"properties":{
				"name":{"type":"string","description":"Only those of this name"}}}`,
			func(ctx context.Context, _ tool.Call, a scheduleArgs) tool.Result {
				list, err := h.Effects.List(ctx, a.Name)
				if err != nil {
					return failure(err)
				}
				return tool.SuccessJSON(map[string]any{"effects": list})
			}),
		newTool("cancel_effect", "Cancels a scheduled effect of this conversation that has not fired yet.",
			`{"type":"object","required":["id"],"additionalProperties":false,"properties":{
				"id":{"type":"string","description":"The id that schedule_effect or list_effects gave"}}}`,
			func(ctx context.Context, _ tool.Call, a scheduleArgs) tool.Result {
				removed, err := h.Effects.Remove(ctx, a.ID)
				if err != nil {
					return failure(err)
				}
				return tool.SuccessJSON(map[string]any{"removed": removed, "id": a.ID})
			}),
	}
}

type scheduleArgs struct {
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Args    json.RawMessage `json:"args"`
	DelayMs float64         `json:"delayMs"`
}
