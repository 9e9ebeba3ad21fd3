package v1alpha1

import "encoding/json"

// ThreadFields are what people and their programs store with a thread.
type ThreadFields struct {
	// Archived is true when lists omit the thread unless they ask for archived ones. It can still be read and
	// written.
	Archived bool `json:"archived"`
	// Draft is a message that has not been sent yet.
	Draft string `json:"draft,omitempty"`
	// AutoSubmitDraft tells the program that shows the thread to send the draft.
	AutoSubmitDraft bool `json:"autoSubmitDraft,omitempty"`
	// AgentMode is a mode of the caller's own, such as smart or rush.
	AgentMode string `json:"agentMode,omitempty"`
	// MaxTokens limits the output of each answer. 0 means that the thread sets no limit.
	MaxTokens int64 `json:"maxTokens,omitempty"`
	// ActivatedSkills lists the activated skills, each once, in the order of their activation.
	ActivatedSkills []SkillActivation `json:"activatedSkills,omitempty"`
	// Workspace is what the thread works on.
	Workspace *Workspace `json:"workspace,omitempty"`
	// NextMessageID is one more than the number of messages that were ever stored.
	NextMessageID int64 `json:"nextMessageId"`
	// QueuedMessages lists the first waiting messages, in order: at most 100, and at most 1 MiB of them unless one is larger.
	QueuedMessages []Message `json:"queuedMessages,omitempty"`
	// Relationships lists the first 100 relationships with other threads, oldest first.
	Relationships []Relationship `json:"relationships,omitempty"`
	// OriginThreadID is the thread that this one was forked from.
	OriginThreadID string `json:"originThreadID,omitempty"`
	// ForkPointIndex is the index, from 0, of the last message that the fork shares with its origin.
	ForkPointIndex *int64 `json:"forkPointIndex,omitempty"`
	// MainThreadID is the outermost ancestor of a subagent's thread. It is absent for other threads.
	MainThreadID string `json:"mainThreadID,omitempty"`
	// UserLastInteractedAt is when the newest message of a user came, or else when the thread was created, in
	// microseconds.
	UserLastInteractedAt int64 `json:"userLastInteractedAt"`
}

// SkillActivation records that a skill was activated. It is also the body of POST skills.
type SkillActivation struct {
	// Name is the name of the skill.
	Name string `json:"name"`
	// Arguments is the object that the skill was activated with.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Workspace is what a thread works on: at most 100 trees of 16 KiB and 100 tags of 256 bytes.
type Workspace struct {
	// Trees holds objects of the caller's own, such as repositories.
	Trees []json.RawMessage `json:"trees,omitempty"`
	// Tags holds texts such as model:x.
	Tags []string `json:"tags,omitempty"`
}

// ThreadPatch is the body of PATCH of the thread itself, a JSON merge patch: an absent field stays; null or the empty
// value removes a field. All of it is applied, or nothing.
type ThreadPatch struct {
	// Title is at most 1 KiB. It is refused when spec.title of the Thread object is set.
	Title *string `json:"title,omitempty"`
	// Archived hides the thread from lists, or shows it again.
	Archived *bool `json:"archived,omitempty"`
	// Draft is at most 64 KiB.
	Draft *string `json:"draft,omitempty"`
	// AutoSubmitDraft is a setting of the draft.
	AutoSubmitDraft *bool `json:"autoSubmitDraft,omitempty"`
	// AgentMode is at most 100 bytes.
	AgentMode *string `json:"agentMode,omitempty"`
	// MaxTokens is 0 for no limit.
	MaxTokens *int64 `json:"maxTokens,omitempty"`
	// Workspace is changed in part: trees and tags are replaced separately.
	Workspace *WorkspacePatch `json:"workspace,omitempty"`
	// V is the version that the caller expects. The patch is refused when the thread has another one.
	V *int64 `json:"v,omitempty"`
}

// WorkspacePatch changes a workspace. Absent fields stay.
type WorkspacePatch struct {
	// Trees replaces the present trees.
	Trees *[]json.RawMessage `json:"trees,omitempty"`
	// Tags replaces the present tags.
	Tags *[]string `json:"tags,omitempty"`
}
