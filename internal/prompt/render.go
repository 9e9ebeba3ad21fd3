package prompt

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// MaxRendered limits a system prompt with its values, in bytes.
const MaxRendered = 4 << 20

// Values are the values for the placeholders of a template.
type Values struct {
	// Arguments are those of the thread, an object or nothing.
	Arguments json.RawMessage
	// Env returns the value of a variable and whether it exists.
	Env func(name string) (string, bool)
}

// Render returns the text. A missing value becomes nothing. Strings are inserted as they are, all other values as JSON.
func (t *Template) Render(v Values) (string, error) {
	if len(t.segments) == 1 && t.segments[0].from == fromText {
		return t.segments[0].literal, nil
	}
	var out strings.Builder
	for i := range t.segments {
		s := &t.segments[i]
		text := s.literal
		switch s.from {
		case fromArguments:
			text = argument(v.Arguments, s.path)
		case fromEnv:
			text = ""
			if v.Env != nil {
				text, _ = v.Env(s.path[0])
			}
		}
		if out.Len()+len(text) > MaxRendered {
			return "", fmt.Errorf("the system prompt has more than %d bytes once its arguments and variables are in it: keep large data in files, or give shorter arguments", MaxRendered)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

// argument follows a path into the arguments: names of fields, and indexes of lists.
func argument(raw json.RawMessage, path []string) string {
	for _, step := range path {
		raw = within(raw, step)
		if raw == nil {
			return ""
		}
	}
	var s *string
	if json.Unmarshal(raw, &s) == nil {
		if s == nil { // null
			return ""
		}
		return *s
	}
	return string(raw)
}

func within(raw json.RawMessage, step string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) == nil {
		return object[step]
	}
	var list []json.RawMessage
	if i, err := strconv.Atoi(step); err == nil && i >= 0 && json.Unmarshal(raw, &list) == nil && i < len(list) {
		return list[i]
	}
	return nil
}
