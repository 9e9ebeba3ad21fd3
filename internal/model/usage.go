package model

// Usage of one call, in tokens, whatever the provider's own way of counting.
type Usage struct {
	// InputTokens are all that were read: CachedTokens and CacheWriteTokens are part of them.
	InputTokens int64 `json:"inputTokens"`
	// OutputTokens are all that were written: ReasoningTokens are part of them.
	OutputTokens int64 `json:"outputTokens"`
	// CachedTokens were read from the provider's cache.
	CachedTokens int64 `json:"cachedTokens,omitempty"`
	// CacheWriteTokens were put into the provider's cache, where that has a price of its own.
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`
	ReasoningTokens  int64 `json:"reasoningTokens,omitempty"`
	// Cost by the Model's pricing; 0 when it has none.
	Cost Cost `json:"cost,omitempty"`
}

// Add sums two usages.
func (u Usage) Add(o Usage) Usage {
	return Usage{
		InputTokens:      u.InputTokens + o.InputTokens,
		OutputTokens:     u.OutputTokens + o.OutputTokens,
		CachedTokens:     u.CachedTokens + o.CachedTokens,
		CacheWriteTokens: u.CacheWriteTokens + o.CacheWriteTokens,
		ReasoningTokens:  u.ReasoningTokens + o.ReasoningTokens,
		Cost:             u.Cost + o.Cost,
	}
}

// Tokens is the sum of what was read and written.
func (u Usage) Tokens() int64 { return u.InputTokens + u.OutputTokens }
