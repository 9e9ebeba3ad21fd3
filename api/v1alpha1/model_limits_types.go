package v1alpha1

// ModelCapabilities say what a model can do, because Skein cannot ask the provider. Skein uses a capability that is
// absent here, and the provider refuses what the model cannot do.
type ModelCapabilities struct {
	// ContextWindow is how many tokens the model reads and writes at most in one call. With it, Skein keeps the
	// conversation within that window. Without it, the provider refuses a conversation that is too long.
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=100000000
	// +optional
	ContextWindow int64 `json:"contextWindow,omitempty"`

	// MaxOutputTokens is how many tokens one answer may have at most.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	// +optional
	MaxOutputTokens int64 `json:"maxOutputTokens,omitempty"`

	// Vision: with false, the model gets no images, only their names.
	// +optional
	Vision *bool `json:"vision,omitempty"`

	// Reasoning: with false, the prompt's reasoning options are not sent to the model.
	// +optional
	Reasoning *bool `json:"reasoning,omitempty"`

	// Tools: with false, the model is offered no tools, and reads earlier calls as text.
	// +optional
	Tools *bool `json:"tools,omitempty"`

	// ParallelToolCalls: false means that the model makes one call at a time, and that its endpoint refuses the parameter for it.
	// +optional
	ParallelToolCalls *bool `json:"parallelToolCalls,omitempty"`

	// StructuredOutput: false means that the model takes no schema for its answer. The schema is then part of the prompt.
	// +optional
	StructuredOutput *bool `json:"structuredOutput,omitempty"`

	// Embeddings: the model turns texts into vectors, and answers nothing.
	// +optional
	Embeddings *bool `json:"embeddings,omitempty"`
}

// Sees reports whether images may be sent.
func (c *ModelCapabilities) Sees() bool { return c == nil || c.Vision == nil || *c.Vision }

// Reasons reports whether reasoning may be asked for.
func (c *ModelCapabilities) Reasons() bool { return c == nil || c.Reasoning == nil || *c.Reasoning }

// CallsTools reports whether tools may be offered.
func (c *ModelCapabilities) CallsTools() bool { return c == nil || c.Tools == nil || *c.Tools }

// CallsAtOnce reports whether the parameter for several tool calls in one answer may be sent.
func (c *ModelCapabilities) CallsAtOnce() bool {
	return c == nil || c.ParallelToolCalls == nil || *c.ParallelToolCalls
}

// TakesSchemas reports whether a schema for the answer may be sent.
func (c *ModelCapabilities) TakesSchemas() bool {
	return c == nil || c.StructuredOutput == nil || *c.StructuredOutput
}

// Embeds reports whether the model only makes embeddings.
func (c *ModelCapabilities) Embeds() bool { return c != nil && c.Embeddings != nil && *c.Embeddings }

// ModelPricing is what a model costs, in US dollars for a million tokens, as decimal strings.
type ModelPricing struct {
	// Input is the price of what the model reads.
	// +kubebuilder:validation:MaxLength=13
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9]{1,6}([.][0-9]{1,6})?$')`,message="write US dollars for a million tokens as a decimal, such as '0.15' or '3'"
	Input string `json:"input"`

	// Output is the price of what the model writes, reasoning included.
	// +kubebuilder:validation:MaxLength=13
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9]{1,6}([.][0-9]{1,6})?$')`,message="write US dollars for a million tokens as a decimal, such as '0.15' or '3'"
	// +optional
	Output string `json:"output,omitempty"`

	// CachedInput is the price of what is read from the provider's cache; that of input when absent.
	// +kubebuilder:validation:MaxLength=13
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9]{1,6}([.][0-9]{1,6})?$')`,message="write US dollars for a million tokens as a decimal, such as '0.15' or '3'"
	// +optional
	CachedInput string `json:"cachedInput,omitempty"`

	// CacheWrite is the price of what is put into the provider's cache; that of input when absent.
	// +kubebuilder:validation:MaxLength=13
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9]{1,6}([.][0-9]{1,6})?$')`,message="write US dollars for a million tokens as a decimal, such as '0.15' or '3'"
	// +optional
	CacheWrite string `json:"cacheWrite,omitempty"`
}

// ModelLimits limit the calls of a model. An absent field means no limit.
type ModelLimits struct {
	// MaxConcurrent is how many calls may be under way at once.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxConcurrent int32 `json:"maxConcurrent,omitempty"`

	// RequestsPerMinute is how many calls may begin in a minute.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	RequestsPerMinute int32 `json:"requestsPerMinute,omitempty"`

	// TokensPerMinute is how many tokens, as the provider counts them, may be read and written in a minute. No call
	// begins while more were used.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +optional
	TokensPerMinute int64 `json:"tokensPerMinute,omitempty"`
}

// Any reports whether there is a limit at all.
func (l *ModelLimits) Any() bool {
	return l != nil && (l.MaxConcurrent > 0 || l.RequestsPerMinute > 0 || l.TokensPerMinute > 0)
}
