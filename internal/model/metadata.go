package model

// Keys in the metadata of an answer that matter when the answer is sent to a provider again.
const (
	// MetadataModel is the name of the Model that answered, when it was a fallback.
	MetadataModel = "model"
	// MetadataThinking is the reasoning of an answer, signed by a provider of Anthropic's API.
	MetadataThinking = "anthropic_thinking"
	// MetadataReasoning is the reasoning of an answer, encrypted by a provider of OpenAI's API that does not keep the conversation itself.
	MetadataReasoning = "openai_reasoning"
	// MetadataOrigin identifies the model and the endpoint that the reasoning of an answer comes from. No other model can read it.
	MetadataOrigin = "reasoning_origin"
	// MetadataCallIDs is the provider's ids of an answer's calls, as an object with the ids of the log as keys.
	MetadataCallIDs = "provider_call_ids"
)
