package store

// Summary says which messages a message stands for: a model has summed them up, and models read the summary in their
// place (MSG-12). The messages themselves stay.
//
// A change of the content of one of them, or its deletion, deletes the summary in the same transaction.
type Summary struct {
	// From and To are the ids of the first and the last of them.
	From string `json:"from"`
	To   string `json:"to"`
	// FromSeq and ToSeq are their sequence numbers. The store fills them in when the message is appended; it refuses ids
	// that the thread does not have.
	FromSeq int64 `json:"fromSeq"`
	ToSeq   int64 `json:"toSeq"`
	// Messages is how many of them the model has read, those of earlier summaries included.
	Messages int `json:"messages"`
	// Agent, Side and Prompt are what the summary is for. Others may be shown other parts of the conversation.
	Agent  string `json:"agent,omitempty"`
	Side   string `json:"side,omitempty"`
	Prompt string `json:"prompt,omitempty"`
	// Model is the name of the Model that wrote it.
	Model string `json:"model,omitempty"`
	// Of is the id of the earlier summary that this one continues; "" for none.
	Of string `json:"of,omitempty"`
}
