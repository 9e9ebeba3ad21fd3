package openai

import "encoding/json"

// Usage is what an answer used, in tokens. It is null in the pieces of an answer other than the last.
type Usage struct {
	PromptTokens            int64             `json:"prompt_tokens"`
	CompletionTokens        int64             `json:"completion_tokens"`
	TotalTokens             int64             `json:"total_tokens"`
	PromptTokensDetails     PromptDetails     `json:"prompt_tokens_details"`
	CompletionTokensDetails CompletionDetails `json:"completion_tokens_details"`
}

// PromptDetails are parts of the tokens of the prompt.
type PromptDetails struct {
	CachedTokens int64 `json:"cached_tokens"`
}

// CompletionDetails are parts of the tokens of the answer.
type CompletionDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"`
}

// NewUsage returns the usage of an answer.
func NewUsage(in, out, cached, reasoning int64) *Usage {
	return &Usage{
		PromptTokens: in, CompletionTokens: out, TotalTokens: in + out,
		PromptTokensDetails: PromptDetails{cached}, CompletionTokensDetails: CompletionDetails{reasoning},
	}
}

// Completion is a whole answer, or a piece of one.
type Completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"` // in seconds since 1970
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage"`
}

// Choice is the one answer there is.
type Choice struct {
	Index        int      `json:"index"`
	Message      *Message `json:"message,omitempty"` // of a whole answer
	Delta        *Delta   `json:"delta,omitempty"`   // of a piece
	Logprobs     any      `json:"logprobs"`          // null
	FinishReason *string  `json:"finish_reason"`
}

// Message is what the agent said.
type Message struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

// Delta is a piece of it.
type Delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// Objects of answers.
const (
	objectWhole = "chat.completion"
	objectPiece = "chat.completion.chunk"
)

// Done ends a stream.
const Done = "[DONE]"

// Answer makes the pieces of one answer, which have its id in common.
type Answer struct {
	ID      string
	Model   string
	Created int64
}

// Whole returns the whole answer.
func (a *Answer) Whole(content string, u *Usage) *Completion {
	c := a.completion(objectWhole, u)
	c.Choices = []Choice{{Message: &Message{Role: "assistant", Content: content}, FinishReason: stop()}}
	return c
}

// First returns the piece that begins a stream.
func (a *Answer) First() *Completion {
	return a.piece(&Delta{Role: "assistant", Content: new("")}, nil)
}

// Text returns a piece with text.
func (a *Answer) Text(text string) *Completion { return a.piece(&Delta{Content: &text}, nil) }

// Last returns the piece that ends the text.
func (a *Answer) Last() *Completion { return a.piece(&Delta{}, stop()) }

// Used returns the piece that tells what the answer used.
func (a *Answer) Used(u *Usage) *Completion {
	c := a.completion(objectPiece, u)
	c.Choices = []Choice{}
	return c
}

func (a *Answer) piece(d *Delta, finished *string) *Completion {
	c := a.completion(objectPiece, nil)
	c.Choices = []Choice{{Delta: d, FinishReason: finished}}
	return c
}

func (a *Answer) completion(object string, u *Usage) *Completion {
	return &Completion{ID: a.ID, Object: object, Created: a.Created, Model: a.Model, Usage: u}
}

func stop() *string { return new("stop") }

// Model is an entry of GET models.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// NewModel returns the entry of a model.
func NewModel(id string, created int64) Model {
	return Model{ID: id, Object: "model", Created: created, OwnedBy: "skein"}
}

// Models is the answer to GET models.
type Models struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// NewModels returns a list of models.
func NewModels(all ...Model) Models { return Models{Object: "list", Data: all} }

// Failure is the error in the body of an answer.
type Failure struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// Encode returns a part of an answer as JSON.
func Encode(v any) []byte {
	b, _ := json.Marshal(v) // has texts and numbers only
	return b
}
