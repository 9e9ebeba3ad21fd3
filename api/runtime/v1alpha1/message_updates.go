package v1alpha1

// RoleInfo may be given when a message is written: it is kept as a silent system message.
const RoleInfo = "info"

// MessageUpdates is the body of PATCH messages/{id}. Fields that are left out stay as they are.
type MessageUpdates struct {
	// Content replaces the text, at most 256 KiB.
	Content *string `json:"content,omitempty"`
	// Metadata is merged, key by key; null removes a key.
	Metadata map[string]any `json:"metadata,omitempty"`
	// Status: pending, completed or failed.
	Status *string `json:"status,omitempty"`
	// ToolStatus of a tool's result: success or error.
	ToolStatus *string `json:"tool_status,omitempty"`
	// Silent messages are for the model, not for people.
	Silent *bool `json:"silent,omitempty"`
}

// MessageDeletion is the answer to DELETE messages/{id}.
type MessageDeletion struct {
	// Deleted is false when there was no such message. With an assistant message go the results of its tool calls.
	Deleted bool `json:"deleted"`
}
