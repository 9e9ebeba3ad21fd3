package v1alpha1

// MessageSummary says which messages a message stands for: a model has summed them up, and the model of the thread reads
// the summary in their place. The messages themselves stay.
type MessageSummary struct {
	// From and To are the ids of the first and the last of them.
	From string `json:"from"`
	To   string `json:"to"`
	// Messages is how many messages it was made of, those of earlier summaries included.
	Messages int `json:"messages"`
	// Agent, Side and Prompt are those whose model reads the summary. Side is absent when only a person and one side talk.
	Agent  string `json:"agent,omitempty"`
	Side   string `json:"side,omitempty"`
	Prompt string `json:"prompt,omitempty"`
	// Model is the name of the Model that wrote it.
	Model string `json:"model,omitempty"`
	// Of is the id of the earlier summary that this one continues.
	Of string `json:"of,omitempty"`
}

// Compact is the body of POST compact: it asks for a summary of all but the newest messages.
type Compact struct {
	// Side is the side whose model reads the summary: a, which it is when absent, or b of a dual_ai agent.
	Side string `json:"side,omitempty"`
	// IdempotencyKey makes a repeat with the same key the same request, at most 200 bytes. The header Idempotency-Key does
	// the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// CompactRequest is the answer to POST compact. The summary is written as soon as no step of a run is under way. An event
// context.compacted or context.compaction_failed then has the request among its requests.
type CompactRequest struct {
	// Request is the id of the request.
	Request string `json:"request"`
}

// Compacted is the data of EventContextCompacted. The event's message is the summary.
type Compacted struct {
	From     string   `json:"from"`
	To       string   `json:"to"`
	Messages int      `json:"messages"`
	Side     string   `json:"side,omitempty"`
	Prompt   string   `json:"prompt,omitempty"`
	Model    string   `json:"model"`
	Requests []string `json:"requests,omitempty"`
}

// CompactionFailure is the data of EventCompactionFailed.
type CompactionFailure struct {
	// Reason is NothingToCompact, Off, NoModel, ModelFailed, EmptySummary, WindowTooSmall or QuotaExceeded.
	Reason   string   `json:"reason"`
	Message  string   `json:"message"`
	Side     string   `json:"side,omitempty"`
	Prompt   string   `json:"prompt,omitempty"`
	Requests []string `json:"requests,omitempty"`
}
