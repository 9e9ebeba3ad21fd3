package builtin

import (
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/tool"
)

// values returns the family for the thread's key-value store.
func values(h *tool.Host) []tool.Tool {
	return []tool.Tool{
		newTool("get_value", "Reads a value that was kept under a key in this conversation; null when there is none.",
			`{"type":"object","required":["key"],"additionalProperties":false,"properties":{
				"key":{"type":"string","minLength":1,"maxLength":512}}}`,
			func(ctx context.Context, _ tool.Call, a valueArgs) tool.Result {
				v, err := h.State.Value(ctx, a.Key)
				if err != nil {
					return failure(err)
				}
				if v == nil {
					return tool.Success("null")
				}
				return tool.Success(string(v))
			}),
		newTool("set_value", "Keeps a JSON value under a key for the life of this conversation; null removes it.",
			`{"type":"object","required":["key","value"],"additionalProperties":false,"properties":{
				"key":{"type":"string","minLength":1,"maxLength":512},
				"value":{"description":"Any JSON value; null removes the key"}}}`,
			func(ctx context.Context, _ tool.Call, a valueArgs) tool.Result {
				if err := h.State.SetValue(ctx, a.Key, a.Value); err != nil {
					return failure(err)
				}
				return tool.SuccessJSON(map[string]string{"key": a.Key})
			}),
	}
}

type valueArgs struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}
