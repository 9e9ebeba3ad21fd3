package builtin

import (
	"context"
	"time"

	"github.com/skein-dev/skein/internal/tool"
)

// waiting returns the family whose tools only take time. The run is parked while they wait.
func waiting(*tool.Host) []tool.Tool {
	return []tool.Tool{
		newTool("wait", "Waits for a time, then goes on. Nothing of this conversation is at work meanwhile.",
			`{"type":"object","required":["delayMs"],"additionalProperties":false,"properties":{
				"delayMs":{"type":"number","minimum":1,"maximum":31536000000,"description":"How long, in milliseconds"}}}`,
			func(_ context.Context, _ tool.Call, a waitArgs) tool.Result {
				return tool.Result{Wait: &tool.Wait{Kind: tool.WaitDelay, For: time.Duration(a.DelayMs * float64(time.Millisecond))}}
			}),
	}
}

type waitArgs struct {
	DelayMs float64 `json:"delayMs"`
}
