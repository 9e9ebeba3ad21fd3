package v1alpha1

// RoleInfo is a role for writing a message: it is stored as a silent system message.
const RoleInfo = "info"

// MessageUpdates is the body of PATCH messages/{id}. Absent fields stay as they are.
type MessageUpdates struct {
	// Content replaces the text, at most 256 KiB.
	Content *string `json:"content,omitempty"`
	// Metadata is merged, key by key. null removes a key.
	Metadata map[string]any `json:"metadata,omitempty"`
	// Status is pending, completed or failed.
	Status *string `json:"status,omitempty"`
	// ToolStatus is the status of a tool's result: success or error.
	ToolStatus *string `json:"tool_status,omitempty"`
	// Silent is true for a message for the model, not for people.
	Silent *bool `json:"silent,omitempty"`
}

// MessageDeletion is the answer to DELETE messages/{id}.
type MessageDeletion struct {
	// Deleted is false when there was no such message. Deleting an assistant message also deletes the results of its
	// tool calls.
	Deleted bool `json:"deleted"`
}
