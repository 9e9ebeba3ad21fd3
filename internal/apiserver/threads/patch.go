package threads

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/jsontype"
	"github.com/skein-dev/skein/internal/thread"
)

// Patch answers PATCH of the thread itself (THR-08, THR-11, THR-14).
func (h *Records) Patch(c *call.Call) error {
	var body threadPatch
	if err := c.Decode(&body, false); err != nil {
		return err
	}
	u, err := body.update(c.Name)
	if err != nil {
		return err
	}
	if u.Title != nil {
		obj, err := h.Find.Object(c.Context(), c.Row.Namespace, c.Row.Name)
		if err != nil {
			return err
		}
		if obj != nil && obj.Spec.Title != "" && obj.Spec.Title != *u.Title {
			return status.Invalid(c.Name, metav1.CauseTypeForbidden, "title", "the Thread object sets the title: change its spec.title, or remove it there")
		}
	}
	if err := c.Thread.Update(c.Context(), u); err != nil {
		return err
	}
	return h.write(c)
}

// threadPatch is runtimev1.ThreadPatch in a form that distinguishes absent, null and a value, as merge patches
// require.
type threadPatch struct {
	Title           json.RawMessage `json:"title"`
	Archived        json.RawMessage `json:"archived"`
	Draft           json.RawMessage `json:"draft"`
	AutoSubmitDraft json.RawMessage `json:"autoSubmitDraft"`
	AgentMode       json.RawMessage `json:"agentMode"`
	MaxTokens       json.RawMessage `json:"maxTokens"`
	Workspace       json.RawMessage `json:"workspace"`
	V               json.RawMessage `json:"v"`
}

// update converts the patch. It returns the error of the first invalid field.
func (p *threadPatch) update(name string) (u thread.ThreadUpdate, err error) {
	read := func(err2 error) {
		if err == nil {
			err = err2
		}
	}
	var err2 error
	u.Title, err2 = readField[string](name, "title", p.Title)
	read(err2)
	u.Archived, err2 = readField[bool](name, "archived", p.Archived)
	read(err2)
	u.Draft, err2 = readField[string](name, "draft", p.Draft)
	read(err2)
	u.AutoSubmitDraft, err2 = readField[bool](name, "autoSubmitDraft", p.AutoSubmitDraft)
	read(err2)
	u.AgentMode, err2 = readField[string](name, "agentMode", p.AgentMode)
	read(err2)
	u.MaxTokens, err2 = readField[int64](name, "maxTokens", p.MaxTokens)
	read(err2)
	u.ExpectVersion, err2 = readField[int64](name, "v", p.V)
	read(err2)
	u.Trees, u.Tags, err2 = p.workspace(name)
	read(err2)
	return u, err
}

func (p *threadPatch) workspace(name string) (trees *[]json.RawMessage, tags *[]string, err error) {
	if len(p.Workspace) == 0 {
		return nil, nil, nil
	}
	if bytes.Equal(p.Workspace, []byte("null")) {
		return new([]json.RawMessage), new([]string), nil
	}
	if _, err := readField[map[string]json.RawMessage](name, "workspace", p.Workspace); err != nil {
		return nil, nil, err
	}
	var w struct {
		Trees json.RawMessage `json:"trees"`
		Tags  json.RawMessage `json:"tags"`
	}
	if err := call.DecodeStrict(name, p.Workspace, &w); err != nil {
		return nil, nil, err
	}
	if trees, err = readField[[]json.RawMessage](name, "workspace.trees", w.Trees); err != nil {
		return nil, nil, err
	}
	tags, err = readField[[]string](name, "workspace.tags", w.Tags)
	return trees, tags, err
}

// readField reads one field of a merge patch. It returns nil for an absent field, and the zero value for null.
func readField[T any](name, field string, raw json.RawMessage) (*T, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v := new(T)
	if bytes.Equal(raw, []byte("null")) {
		return v, nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		_, text := jsontype.Wrong(err)
		return nil, status.Invalid(name, metav1.CauseTypeTypeInvalid, field, text)
	}
	return v, nil
}
