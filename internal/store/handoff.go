package store

// Handoff gives the thread to another agent (AGT-03) and logs EventHandoff; to the one that has it already it
// changes nothing and logs nothing. Done and From are filled in.
type Handoff struct {
	Agent string
	// Declared: it is what the spec of the Thread object names now, so that only another change of the spec hands the
	// thread over again. A handoff of the conversation's own leaves what is declared as it is.
	Declared bool
	// By, RunID and ToolCallID say what led to it: one of the HandoffBy constants and, where it was a call, which.
	By         string
	RunID      string
	ToolCallID string

	From string // the agent that had the thread
	Done bool   // the agent has changed
}

// What led to a handoff.
const (
	HandoffBySpec = "spec" // a change of the Thread's spec.agentRef
	HandoffByTool = "tool" // a call of the agent as a tool
)

// HandoffData is the data of EventHandoff.
type HandoffData struct {
	From       string `json:"from"`
	To         string `json:"to"`
	By         string `json:"by"`
	ToolCallID string `json:"toolCallId,omitempty"`
}

func (*Handoff) op() {}
