package v1alpha1

import "encoding/json"

// ThreadFields are what people and their programs keep with a thread.
type ThreadFields struct {
	// Archived threads are hidden from lists unless asked for; they can still be read and written.
	Archived bool `json:"archived"`
	// Draft is a message that was not sent yet.
	Draft string `json:"draft,omitempty"`
	// AutoSubmitDraft says that whoever shows the thread should send the draft.
	AutoSubmitDraft bool `json:"autoSubmitDraft,omitempty"`
	// AgentMode is a mode of the caller's own, such as smart or rush.
	AgentMode string `json:"agentMode,omitempty"`
	// MaxTokens caps the output of each answer, 0 for no cap of the thread's own.
	MaxTokens int64 `json:"maxTokens,omitempty"`
	// ActivatedSkills, each once, in the order of their activation.
	ActivatedSkills []SkillActivation `json:"activatedSkills,omitempty"`
	// Workspace is what the thread works on.
	Workspace *Workspace `json:"workspace,omitempty"`
	// NextMessageID counts the messages that were ever stored, plus one.
	NextMessageID int64 `json:"nextMessageId"`
	// QueuedMessages wait to be taken, in order; the first 100.
	QueuedMessages []Message `json:"queuedMessages,omitempty"`
	// Relationships with other threads, oldest first; the first 100.
	Relationships []Relationship `json:"relationships,omitempty"`
	// OriginThreadID is the thread that this one was forked from.
	OriginThreadID string `json:"originThreadID,omitempty"`
	// ForkPointIndex is the place, from 0, of the last message that the fork has of its origin.
	ForkPointIndex *int64 `json:"forkPointIndex,omitempty"`
	// MainThreadID is the outermost ancestor of a subagent's thread, left out of others.
	MainThreadID string `json:"mainThreadID,omitempty"`
	// UserLastInteractedAt is when the newest message of a user came, or else when the thread was made, in
	// microseconds.
	UserLastInteractedAt int64 `json:"userLastInteractedAt"`
}

// SkillActivation records that a skill was activated. It is also the body of POST skills.
type SkillActivation struct {
	// Name of the skill.
	Name string `json:"name"`
	// Arguments that it was activated with, an object.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Workspace is what a thread works on: at most 100 trees of 16 KiB and 100 tags of 256 bytes.
type Workspace struct {
	// Trees are objects of the caller's own, such as repositories.
	Trees []json.RawMessage `json:"trees,omitempty"`
	// Tags, such as model:x.
	Tags []string `json:"tags,omitempty"`
}

// ThreadPatch is the body of PATCH of the thread itself, a JSON merge patch: what is left out stays, null or the
// empty value takes a field away. All of it is changed, or nothing.
type ThreadPatch struct {
	// Title, at most 1 KiB. It is refused where spec.title of the Thread object says one.
	Title *string `json:"title,omitempty"`
	// Archived hides the thread from lists, or shows it again.
	Archived *bool `json:"archived,omitempty"`
	// Draft, at most 64 KiB.
	Draft *string `json:"draft,omitempty"`
	// AutoSubmitDraft of the draft.
	AutoSubmitDraft *bool `json:"autoSubmitDraft,omitempty"`
	// AgentMode, at most 100 bytes.
	AgentMode *string `json:"agentMode,omitempty"`
	// MaxTokens, 0 for no cap.
	MaxTokens *int64 `json:"maxTokens,omitempty"`
	// Workspace; trees and tags are replaced each by itself.
	Workspace *WorkspacePatch `json:"workspace,omitempty"`
	// V is the version that the caller has seen: with another one the patch is refused.
	V *int64 `json:"v,omitempty"`
}

// WorkspacePatch changes a workspace: what is left out stays.
type WorkspacePatch struct {
	// Trees in place of those that are there.
	Trees *[]json.RawMessage `json:"trees,omitempty"`
	// Tags in place of those that are there.
	Tags *[]string `json:"tags,omitempty"`
}
