package thread

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// Limits of the fields.
const (
	maxTitle     = 1 << 10
	maxDraft     = 64 << 10
	maxAgentMode = 100
	maxTrees     = 100
	maxTreeBytes = 16 << 10
	maxTags      = 100
	maxTagBytes  = 256
	maxSkills    = 100
	maxSkillName = 200
	maxSkillArgs = 64 << 10
)

// ThreadUpdate says what to change of a thread's own fields (THR-14). nil leaves a field as it is, the zero value
// clears it.
type ThreadUpdate struct {
	Title           *string
	Archived        *bool // THR-08
	Draft           *string
	AutoSubmitDraft *bool
	AgentMode       *string
	MaxTokens       *int64
	Trees           *[]json.RawMessage // of the workspace
	Tags            *[]string          // of the workspace
	// ExpectVersion makes the update fail with a *store.VersionError when the thread has another version.
	ExpectVersion *int64
}

// Update changes the thread's own fields, all or none.
func (st *State) Update(ctx context.Context, u ThreadUpdate) error {
	if err := u.check(); err != nil {
		return err
	}
	return st.Apply(ctx, &store.UpdateThread{
		Title: u.Title, Archived: u.Archived, ExpectVersion: u.ExpectVersion,
		EditFields: func(f *store.Fields) error {
			set(&f.Draft, u.Draft)
			set(&f.AutoSubmitDraft, u.AutoSubmitDraft)
			set(&f.AgentMode, u.AgentMode)
			set(&f.MaxTokens, u.MaxTokens)
			var w store.Workspace
			if f.Workspace != nil {
				w = *f.Workspace
			}
			set(&w.Trees, u.Trees)
			set(&w.Tags, u.Tags)
			if f.Workspace = &w; len(w.Trees) == 0 && len(w.Tags) == 0 {
				f.Workspace = nil
			}
			return nil
		},
	})
}

func set[T any](field *T, to *T) {
	if to != nil {
		*field = *to
	}
}

func (u *ThreadUpdate) check() error {
	for _, t := range []struct {
		field string
		text  *string
		limit int
	}{{"title", u.Title, maxTitle}, {"draft", u.Draft, maxDraft}, {"agentMode", u.AgentMode, maxAgentMode}} {
		if t.text == nil {
			continue
		}
		if len(*t.text) > t.limit {
			return invalid(t.field, "it has %d bytes, more than the limit of %d: shorten it", len(*t.text), t.limit)
		}
		if err := checkText(t.field, *t.text); err != nil {
			return err
		}
	}
	if u.MaxTokens != nil && *u.MaxTokens < 0 {
		return invalid("maxTokens", "use a number above 0, or null for no limit")
	}
	if u.ExpectVersion != nil && *u.ExpectVersion < 0 {
		return invalid("v", "give the version that you have read, 0 or more")
	}
	var w store.Workspace
	set(&w.Trees, u.Trees)
	set(&w.Tags, u.Tags)
	return checkWorkspace(w)
}

func checkWorkspace(w store.Workspace) error {
	if len(w.Trees) > maxTrees || len(w.Tags) > maxTags {
		return invalid("workspace", "give at most %d trees and %d tags", maxTrees, maxTags)
	}
	for _, t := range w.Trees {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(t, &object); err != nil || object == nil || len(t) > maxTreeBytes {
			return invalid("workspace.trees", "each tree must be a JSON object of at most %d bytes", maxTreeBytes)
		}
	}
	for _, t := range w.Tags {
		if t == "" || len(t) > maxTagBytes || strings.ContainsRune(t, 0) {
			return invalid("workspace.tags", "each tag must be a text of 1 to %d bytes", maxTagBytes)
		}
	}
	return nil
}

// ActivateSkill records the activation of a skill, once per name. A repeat keeps the first arguments (AGT-08). It
// returns the record and whether it is new.
func (st *State) ActivateSkill(ctx context.Context, name string, arguments json.RawMessage) (skill store.SkillActivation, recorded bool, err error) {
	if name == "" || len(name) > maxSkillName {
		return skill, false, invalid("name", "name the skill, in at most %d bytes", maxSkillName)
	}
	if err := checkText("name", name); err != nil {
		return skill, false, err
	}
	if len(arguments) > 0 {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(arguments, &object); err != nil || object == nil || len(arguments) > maxSkillArgs {
			return skill, false, invalid("arguments", "give a JSON object of at most %d bytes, or leave them out", maxSkillArgs)
		}
	}
	err = st.Apply(ctx, &store.UpdateThread{EditFields: func(f *store.Fields) error {
		skill, recorded = store.SkillActivation{Name: name, Arguments: arguments}, true
		i := slices.IndexFunc(f.ActivatedSkills, func(s store.SkillActivation) bool { return s.Name == name })
		switch {
		case i >= 0:
			skill, recorded = f.ActivatedSkills[i], false
		case len(f.ActivatedSkills) >= maxSkills:
			return invalid("name", "the thread has activated %d skills already, which is the limit: put their instructions into messages", maxSkills)
		default:
			f.ActivatedSkills = append(f.ActivatedSkills, skill)
		}
		return nil
	}})
	if err != nil || skill.Name != "" {
		return skill, recorded, err
	}
	// This is a repeat of a request that has recorded the skill: return the thread's record.
	t, err := st.Info(ctx)
	if err != nil {
		return skill, false, err
	}
	if i := slices.IndexFunc(t.Fields.ActivatedSkills, func(s store.SkillActivation) bool { return s.Name == name }); i >= 0 {
		skill = t.Fields.ActivatedSkills[i]
	}
	return skill, true, nil
}
