package store

// Handoff hands the thread over to another agent (AGT-03) and logs EventHandoff. When Agent already has the thread, it
// changes and logs nothing. Done and From are filled in.
type Handoff struct {
	Agent string
	// Declared says that the spec of the Thread object names Agent, so only another change of the spec hands the thread
	// over again. A handoff from within the conversation leaves DeclaredAgent as it is.
	Declared bool
	// By is one of the HandoffBy constants. RunID and ToolCallID name the call that caused the handoff, if one did.
	By         string
	RunID      string
	ToolCallID string

	From string // the agent that had the thread before
	Done bool   // whether the agent changed
}

// The causes of a handoff.
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
