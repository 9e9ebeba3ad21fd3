package model

// Usage is the usage of one call in tokens. It is independent of how the provider counts.
type Usage struct {
	// InputTokens is all that was read, including CachedTokens and CacheWriteTokens.
	InputTokens int64 `json:"inputTokens"`
	// OutputTokens is all that was written, including ReasoningTokens.
	OutputTokens int64 `json:"outputTokens"`
	// CachedTokens were read from the provider's cache.
	CachedTokens int64 `json:"cachedTokens,omitempty"`
	// CacheWriteTokens were written to the provider's cache, where that has a separate price.
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`
	ReasoningTokens  int64 `json:"reasoningTokens,omitempty"`
	// Cost is the price by the Model's pricing; 0 when it has none.
	Cost Cost `json:"cost,omitempty"`
}

// Add returns the sum of two usages.
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

// Tokens returns the sum of what was read and written.
func (u Usage) Tokens() int64 { return u.InputTokens + u.OutputTokens }

// MaxReported is the largest number of tokens that a provider is believed to have counted in one call.
const MaxReported = 1 << 32

// Reported returns the usage that a provider reported, with numbers that can be added to those of other calls: a negative one would take
// back what other calls have used of a quota, and a huge one would overflow.
func Reported(u Usage) *Usage {
	for _, n := range []*int64{&u.InputTokens, &u.OutputTokens, &u.CachedTokens, &u.CacheWriteTokens, &u.ReasoningTokens} {
		*n = min(max(*n, 0), MaxReported)
	}
	return &u
}
