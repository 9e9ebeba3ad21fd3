package scripted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/template"

	"github.com/skein-dev/skein/internal/model"
)

// view is what a template sees of a conversation.
type view struct {
	Last      lastMessage
	Arguments any
	// Session is the session that continues. NewMessages is how many messages it does not know.
	Session     string
	NewMessages int

	messages []model.Message
}

type lastMessage struct{ Role, Content, Name string }

func newView(req model.Request) (*view, error) {
	last := lastOf(req.Messages)
	v := &view{
		Last:      lastMessage{Role: string(last.Role), Content: last.Content, Name: last.Name},
		Arguments: map[string]any{},
		Session:   req.Session, NewMessages: len(req.Messages) - req.SessionMessages,
		messages: req.Messages,
	}
	if len(req.Arguments) > 0 {
		args, err := decode(req.Arguments)
		if err != nil {
			return nil, fmt.Errorf("the thread's arguments are not valid JSON: %w", err)
		}
		v.Arguments = args
	}
	return v, nil
}

// text is a template, or plain text when it has no actions.
type text struct {
	plain string
	tmpl  *template.Template
}

func parseText(name, source string) (text, error) {
	if !strings.Contains(source, "{{") {
		return text{plain: source}, nil
	}
	t, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{
		"toolResult": func(string) (any, error) { return nil, nil }, // bound to the conversation by render
		"fromJSON":   func(text string) (any, error) { return decode([]byte(text)) },
		"toJSON":     toJSON,
	}).Parse(source)
	if err != nil {
		return text{}, fmt.Errorf("%s is not a template: %w", name, err)
	}
	return text{tmpl: t}, nil
}

func toJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

func (v *view) render(t text) (string, error) {
	if t.tmpl == nil {
		return t.plain, nil
	}
	// Functions belong to a template and not to an execution, so a clone separates concurrent calls.
	tmpl, err := t.tmpl.Clone()
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = tmpl.Funcs(template.FuncMap{"toolResult": v.toolResult}).Execute(&out, v)
	return out.String(), err
}

// renderStrings renders the templates inside a JSON value.
func (v *view) renderStrings(x any) (any, error) {
	switch x := x.(type) {
	case text:
		return v.render(x)
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			r, err := v.renderStrings(e)
			if err != nil {
				return nil, err
			}
			out[k] = r
		}
		return out, nil
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			r, err := v.renderStrings(e)
			if err != nil {
				return nil, err
			}
			out[i] = r
		}
		return out, nil
	}
	return x, nil
}

// toolResult returns the newest result of a tool, decoded when it is JSON.
func (v *view) toolResult(name string) (any, error) {
	for i := len(v.messages) - 1; i >= 0; i-- {
		m := v.messages[i]
		if m.Role != model.RoleTool || m.Name != name {
			continue
		}
		if decoded, err := decode([]byte(m.Content)); err == nil {
			return decoded, nil
		}
		return m.Content, nil
	}
	return nil, fmt.Errorf("no result of the tool %q yet", name)
}

// decode reads one JSON value. Its numbers print as people write them, not as 1.2e+06.
func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return numbers(v), nil
}

// decimal is a number with a fraction.
type decimal float64

// String implements fmt.Stringer.
func (d decimal) String() string { return strconv.FormatFloat(float64(d), 'f', -1, 64) }

func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil {
			return decimal(f)
		}
		return v.String()
	case map[string]any:
		for k, e := range v {
			v[k] = numbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = numbers(e)
		}
	}
	return v
}
