package store

import (
	"encoding/json"
	"fmt"
)

// Fields are the fields of a thread that users and their programs set and Skein only stores (THR-14). The exception is
// ActivatedSkills, which unlocks tools. Most threads set few of them.
type Fields struct {
	Draft           string            `json:"draft,omitempty"`
	AutoSubmitDraft bool              `json:"autoSubmitDraft,omitempty"`
	AgentMode       string            `json:"agentMode,omitempty"`
	MaxTokens       int64             `json:"maxTokens,omitempty"`
	ActivatedSkills []SkillActivation `json:"activatedSkills,omitempty"`
	Workspace       *Workspace        `json:"workspace,omitempty"`
}

// SkillActivation is one activated skill. A thread activates each skill once (AGT-08).
type SkillActivation struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Workspace describes what a thread works on.
type Workspace struct {
	Trees []json.RawMessage `json:"trees,omitempty"` // objects that the caller defines
	Tags  []string          `json:"tags,omitempty"`
}

// DiffStats counts the changes of a thread's files since its creation. Folders are not counted.
type DiffStats struct {
	Added   int64 // written where no file was
	Changed int64 // replaced by different contents
	Removed int64
}

// VersionError is an ErrConflict that names the thread's version (THR-11).
type VersionError struct {
	ThreadID          string
	Expected, Current int64
}

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("thread %s: it is at version %d, not %d: %v", e.ThreadID, e.Current, e.Expected, ErrConflict)
}

// Is reports whether target is ErrConflict.
func (e *VersionError) Is(target error) bool { return target == ErrConflict }
