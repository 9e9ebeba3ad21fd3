package v1alpha1

// ForkFrom says from which message of which thread a Thread is forked. Without messageIndex and messageID that is the newest
// message that the other thread has when the fork is made.
// +kubebuilder:validation:XValidation:rule="!has(self.messageIndex) || !has(self.messageID)",message="set messageIndex or messageID, not both, or neither for the newest message"
type ForkFrom struct {
	// ThreadRef names the Thread, of the same namespace. The fork is made once it is there.
	ThreadRef LocalRef `json:"threadRef"`

	// MessageIndex is the index of the last message of the fork: the number of messages before it, including silent ones and
	// those of deeper levels. The fork is made once the thread has that message.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MessageIndex *int64 `json:"messageIndex,omitempty"`

	// MessageID is the id of the last message of the fork.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	MessageID string `json:"messageID,omitempty"`
}

// MaxStatusRelationships bounds ThreadStatus.Relationships; the runtime API lists all.
const MaxStatusRelationships = 20

// RelationshipStatus links a Thread with another one, which has the same link with the other role.
type RelationshipStatus struct {
	// ThreadID is the id of the other thread.
	ThreadID string `json:"threadID"`
	// ThreadName is the name of its Thread object.
	// +optional
	ThreadName string `json:"threadName,omitempty"`
	// Type: fork, handoff or mention.
	Type string `json:"type"`
	// Role of this thread: parent or child.
	Role string `json:"role"`
	// MessageIndex is the index of the parent's message at which it was made; absent for none.
	// +optional
	MessageIndex *int64 `json:"messageIndex,omitempty"`
	// CreatedAt in microseconds since 1970.
	// +optional
	CreatedAt int64 `json:"createdAt,omitempty"`
}
