package model

import (
	"context"
	"fmt"
	"slices"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Fitted returns a client that adapts requests to what the model can do, and fills in what each answer cost.
func Fitted(c Client, name string, spec skeinv1.ModelSpec) Client {
	return &fitted{client: c, name: name, capabilities: spec.Capabilities, pricing: spec.Pricing}
}

type fitted struct {
	client       Client
	name         string
	capabilities *skeinv1.ModelCapabilities
	pricing      *skeinv1.ModelPricing
}

// Stream implements Client.
func (f *fitted) Stream(ctx context.Context, req Request, emit func(Delta)) (*Response, error) {
	if f.capabilities.Embeds() {
		return nil, Errorf(KindConfig, "model %s is one for embeddings: name another Model in the prompt, or correct spec.capabilities.embeddings", f.name)
	}
	res, err := f.client.Stream(ctx, f.fit(req), emit)
	if err != nil {
		return nil, err
	}
	return res, f.price(res.Usage)
}

// Embed implements Embedder if the client does.
func (f *fitted) Embed(ctx context.Context, texts []string) (*Embeddings, error) {
	e, err := EmbedderOf(f.client, f.name)
	if err != nil {
		return nil, err
	}
	out, err := e.Embed(ctx, texts)
	if err != nil {
		return nil, err
	}
	return out, f.price(out.Usage)
}

func (f *fitted) price(u *Usage) error {
	if u == nil || f.pricing == nil {
		return nil
	}
	cost, err := Price(f.pricing, *u)
	if err != nil {
		return Errorf(KindConfig, "model %s: %v", f.name, err)
	}
	u.Cost = cost
	return nil
}

// fit removes from a request what the model cannot do.
func (f *fitted) fit(req Request) Request {
	c := f.capabilities
	if !c.Sees() {
		req.Messages = slices.Clone(req.Messages)
		for i := range req.Messages {
			req.Messages[i].Images = nil // their names are among the attachments
		}
	}
	if !c.Reasons() {
		req.Reasoning = nil
	}
	if !c.CallsTools() {
		req.Tools, req.ToolChoice, req.ParallelToolCalls = nil, "", nil // WithoutTools describes the calls already made
	}
	if !c.CallsAtOnce() {
		req.ParallelToolCalls = nil
	}
	if len(req.Schema) > 0 && !c.TakesSchemas() {
		const demand = "Answer with one JSON value and nothing else, neither words nor a code fence around it. It must match this JSON Schema:\n"
		note := Message{Role: RoleSystem, Content: demand + string(req.Schema)}
		if req.Messages = slices.Clone(req.Messages); len(req.Messages) > 0 && req.Messages[0].Role == RoleSystem {
			req.Messages[0].Content += "\n\n" + note.Content
		} else {
			req.Messages = slices.Insert(req.Messages, 0, note)
			if req.SessionMessages > 0 {
				req.SessionMessages++
			}
		}
		req.Schema = nil
	}
	return req
}

// WithoutTools returns a client that describes earlier tool calls and their results in words, for a model without tools. Wrap
// it with window.Within, not the other way round: the described results are user turns and no longer tool results.
func WithoutTools(c Client, spec skeinv1.ModelSpec) Client {
	if spec.Capabilities.CallsTools() {
		return c
	}
	return &withoutTools{client: c}
}

type withoutTools struct{ client Client }

// Stream implements Client.
func (t *withoutTools) Stream(ctx context.Context, req Request, emit func(Delta)) (*Response, error) {
	req.Messages = describeCalls(req.Messages)
	return t.client.Stream(ctx, req, emit)
}

// Embed implements Embedder if the client does.
func (t *withoutTools) Embed(ctx context.Context, texts []string) (*Embeddings, error) {
	e, err := EmbedderOf(t.client, "")
	if err != nil {
		return nil, err
	}
	return e.Embed(ctx, texts)
}

// describeCalls replaces tool calls and their results with words, for models without tools.
func describeCalls(messages []Message) []Message {
	out := slices.Clone(messages)
	for i := range out {
		m := &out[i]
		switch {
		case m.Role == RoleAssistant && len(m.ToolCalls) > 0:
			words := make([]string, 0, 1+len(m.ToolCalls))
			if m.Content != "" {
				words = append(words, m.Content)
			}
			for _, c := range m.ToolCalls {
				words = append(words, fmt.Sprintf("[called the tool %s with %s]", c.Name, c.Arguments))
			}
			m.Content, m.ToolCalls = strings.Join(words, "\n"), nil
		case m.Role == RoleTool:
			m.Content = fmt.Sprintf("[result of the tool %s]\n%s", m.Name, m.Content)
			m.Role, m.Name, m.ToolCallID = RoleUser, "", ""
		}
	}
	return out
}
