package openai

// responsesRequest is the body of a request to the responses API, as far as Skein uses it. Pointers are for fields of which an empty value
// differs from an absent one.
type responsesRequest struct {
	Model              string          `json:"model"`
	Input              []any           `json:"input,omitempty"` // inputMessage, inputCall, inputResult and inputReasoning
	Stream             bool            `json:"stream"`
	Store              bool            `json:"store"`
	Include            []string        `json:"include,omitempty"`
	PreviousResponseID string          `json:"previous_response_id,omitempty"`
	Instructions       *string         `json:"instructions,omitempty"`
	Temperature        *float64        `json:"temperature,omitempty"`
	TopP               *float64        `json:"top_p,omitempty"`
	MaxOutputTokens    *int64          `json:"max_output_tokens,omitempty"`
	Reasoning          *reasoning      `json:"reasoning,omitempty"`
	Text               *textFormat     `json:"text,omitempty"`
	Tools              []responsesTool `json:"tools,omitempty"`
	ToolChoice         string          `json:"tool_choice,omitempty"`
	ParallelToolCalls  *bool           `json:"parallel_tool_calls,omitempty"`
}

// reasoning says how much the model reasons, and whether it tells.
type reasoning struct {
	Effort  string `json:"effort,omitempty"`
	Summary string `json:"summary,omitempty"`
}

// textFormat is the form of the answer's text.
type textFormat struct {
	Format schemaFormat `json:"format"`
}

type schemaFormat struct {
	Type   string         `json:"type"`
	Name   string         `json:"name"`
	Schema map[string]any `json:"schema,omitzero"`
}

// responsesTool is a function that the model may call.
type responsesTool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  map[string]any `json:"parameters,omitzero"`
	Strict      bool           `json:"strict"`
}

// inputMessage is a message of the conversation.
type inputMessage struct {
	Role    string `json:"role"`
	Content any    `json:"content"` // a text, or a list of inputText and inputImage
}

type inputText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type inputImage struct {
	Type     string `json:"type"`
	Detail   string `json:"detail"`
	ImageURL string `json:"image_url"`
}

// inputCall is a call of a function in an earlier answer.
type inputCall struct {
	Type      string `json:"type"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// inputResult is the result of a call.
type inputResult struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output any    `json:"output"` // a text, or a list of inputText and inputImage
}

// inputReasoning is the reasoning of an earlier answer, which only the provider can read.
type inputReasoning struct {
	Type             string `json:"type"`
	ID               string `json:"id"`
	Summary          []any  `json:"summary"` // always empty: the provider has it
	EncryptedContent string `json:"encrypted_content"`
}
