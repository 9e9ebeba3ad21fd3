// Package openai is the form of OpenAI's chat completions, as far as the gateway for end users speaks it: requests, answers
// and pieces of answers. It knows nothing of conversations and agents.
package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Error says what is wrong with a request.
type Error struct {
	// Param is the field that is wrong, or "".
	Param string
	// Code is OpenAI's word for it, or "".
	Code    string
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Turn is one message of a request.
type Turn struct {
	Role    string // user or assistant
	Content string
}

// Chat is a request for a chat completion.
type Chat struct {
	Model string
	// Said is what the user says now: the last message.
	Said string
	// Earlier are the messages before it, oldest first, without those of other roles.
	Earlier []Turn
	Stream  bool
	// Usage tells to end a stream with what the answer used.
	Usage bool
}

// MaxEarlier is how many earlier messages count. Those before them are left out.
const MaxEarlier = 200

// chat is the part of the body that matters. What an agent decides for itself, such as the temperature, is not read.
type chat struct {
	Model         string            `json:"model"`
	Messages      []json.RawMessage `json:"messages"`
	Stream        *bool             `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N              *int              `json:"n"`
	Tools          []json.RawMessage `json:"tools"`
	Functions      []json.RawMessage `json:"functions"`
	Modalities     []string          `json:"modalities"`
	Logprobs       *bool             `json:"logprobs"`
	ResponseFormat *struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

// turn is a message of the body.
type turn struct {
	Role       string            `json:"role"`
	Content    json.RawMessage   `json:"content"`
	ToolCalls  []json.RawMessage `json:"tool_calls"`
	ToolCallID string            `json:"tool_call_id"`
}

// ParseChat reads the body of POST chat/completions. Its error is an *Error.
func ParseChat(body []byte) (*Chat, error) {
	var in chat
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, invalid("", "the body is not a chat completion: %s", wrong(err))
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	out := &Chat{Model: in.Model, Stream: in.Stream != nil && *in.Stream, Usage: in.StreamOptions != nil && in.StreamOptions.IncludeUsage}
	last := len(in.Messages) - 1
	for i, raw := range in.Messages {
		t, err := parseTurn(raw, fmt.Sprintf("messages[%d]", i), i == last)
		switch {
		case err != nil:
			return nil, err
		case t == nil: // of a role that does not count
		case i == last:
			out.Said = t.Content
		default:
			out.Earlier = append(out.Earlier, *t)
		}
	}
	out.Earlier = out.Earlier[max(len(out.Earlier)-MaxEarlier, 0):]
	return out, nil
}

// check refuses what the agent cannot do for a client.
func (in *chat) check() error {
	switch {
	case in.Model == "":
		return invalid("model", "name the model: GET v1/models lists it")
	case len(in.Messages) == 0:
		return invalid("messages", "messages is empty: end it with what the user says")
	case in.N != nil && *in.N != 1:
		return unsupported("n", "there is one answer: leave n out")
	case len(in.Tools) > 0:
		return unsupported("tools", "the agent has tools of its own: leave tools out")
	case len(in.Functions) > 0:
		return unsupported("functions", "the agent has tools of its own: leave functions out")
	case in.Logprobs != nil && *in.Logprobs:
		return unsupported("logprobs", "there are no probabilities of tokens: leave logprobs out")
	case in.ResponseFormat != nil && in.ResponseFormat.Type != "" && in.ResponseFormat.Type != "text":
		return unsupported("response_format", "the agent answers with text: leave response_format out, or ask in the message for the form that you want")
	}
	for _, m := range in.Modalities {
		if m != "text" {
			return unsupported("modalities", "the agent answers with text: leave modalities out")
		}
	}
	return nil
}

// parseTurn returns a message, or nil when it does not count: system prompts are the agent's own, and so are its tools. The
// last message must be what the user says.
func parseTurn(raw json.RawMessage, param string, last bool) (*Turn, error) {
	var t turn
	if err := json.Unmarshal(raw, &t); err != nil || t.Role == "" {
		return nil, invalid(param, "%s is not a message: write an object with role and content", param)
	}
	if last && t.Role != "user" {
		return nil, invalid(param, "the last message has the role %q: end messages with one of the user", clip(t.Role))
	}
	switch t.Role {
	case "user", "assistant":
	case "system", "developer", "tool", "function":
		return nil, nil
	default:
		return nil, invalid(param+".role", "there is no role %q: write user or assistant", clip(t.Role))
	}
	text, err := textOf(t.Content, param+".content")
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(text) == "" {
		if last {
			return nil, invalid(param+".content", "the last message is empty: say something")
		}
		return nil, nil // calls of tools, without a word
	}
	return &Turn{Role: t.Role, Content: text}, nil
}

// textOf returns the text of a content, which is a text or a list of parts.
func textOf(content json.RawMessage, param string) (string, error) {
	content = bytes.TrimSpace(content)
	if len(content) == 0 || bytes.Equal(content, []byte("null")) {
		return "", nil
	}
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if err := json.Unmarshal(content, &parts); err != nil {
		return "", invalid(param, "%s must be a text, or a list of parts of the type text", param)
	}
	texts := make([]string, 0, len(parts))
	for i, p := range parts {
		switch p.Type {
		case "text":
			texts = append(texts, p.Text)
		case "refusal":
			texts = append(texts, p.Refusal)
		default:
			return "", unsupported(fmt.Sprintf("%s[%d].type", param, i), "parts of the type %q are not taken: send text alone", clip(p.Type))
		}
	}
	return strings.Join(texts, "\n"), nil
}

func invalid(param, format string, args ...any) *Error {
	return &Error{Param: param, Code: "invalid_value", Message: fmt.Sprintf(format, args...)}
}

func unsupported(param, format string, args ...any) *Error {
	return &Error{Param: param, Code: "unsupported_parameter", Message: fmt.Sprintf(format, args...)}
}

// wrong says what is wrong with JSON, without the names of Go.
func wrong(err error) string {
	if typed, ok := err.(*json.UnmarshalTypeError); ok && typed.Field != "" { //nolint:errorlint // Unmarshal does not wrap
		return fmt.Sprintf("%s must not be a %s", typed.Field, typed.Value)
	}
	return "send a JSON object with model and messages"
}

// clip bounds what of a request is repeated in an error.
func clip(s string) string {
	if len(s) > 40 {
		s = strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}
