package store

import (
	"encoding/json"
	"fmt"
)

// Fields are those of a thread that people and their programs set and Skein only keeps (THR-14), but for the skills,
// which unlock tools. Most threads have few of them.
type Fields struct {
	Draft           string            `json:"draft,omitempty"`
	AutoSubmitDraft bool              `json:"autoSubmitDraft,omitempty"`
	AgentMode       string            `json:"agentMode,omitempty"`
	MaxTokens       int64             `json:"maxTokens,omitempty"`
	ActivatedSkills []SkillActivation `json:"activatedSkills,omitempty"`
	Workspace       *Workspace        `json:"workspace,omitempty"`
}

// SkillActivation is one skill that was activated, once (AGT-08).
type SkillActivation struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Workspace is what a thread works on.
type Workspace struct {
	Trees []json.RawMessage `json:"trees,omitempty"` // objects of the caller's own
	Tags  []string          `json:"tags,omitempty"`
}

// DiffStats counts what has happened to a thread's files since its creation, folders apart.
type DiffStats struct {
	Added   int64 // written where there was none
	Changed int64 // replaced by other contents
	Removed int64
}

// VersionError is an ErrConflict that says which version the thread has (THR-11).
type VersionError struct {
	ThreadID          string
	Expected, Current int64
}

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("thread %s: it is at version %d, not %d: %v", e.ThreadID, e.Current, e.Expected, ErrConflict)
}

// Is makes it an ErrConflict.
func (e *VersionError) Is(target error) bool { return target == ErrConflict }
