package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ModelProvider is the protocol of a model.
// +kubebuilder:validation:Enum=openai;anthropic;scripted
type ModelProvider string

// The providers.
const (
	// ProviderOpenAI: any server that speaks OpenAI's chat completions, or its responses API.
	ProviderOpenAI ModelProvider = "openai"
	// ProviderAnthropic: any server that speaks Anthropic's messages API.
	ProviderAnthropic ModelProvider = "anthropic"
	// ProviderScripted plays a given script, for demos and tests.
	ProviderScripted ModelProvider = "scripted"
)

// ModelAPI is one of a provider's APIs.
// +kubebuilder:validation:Enum=chat;responses
type ModelAPI string

// The APIs of provider openai.
const (
	// APIChat is chat completions, which every compatible server has.
	APIChat ModelAPI = "chat"
	// APIResponses is the responses API, whose server can keep the conversation.
	APIResponses ModelAPI = "responses"
)

// ModelHeader is a header of each request to the endpoint.
type ModelHeader struct {
	// Name of the header. Those that carry credentials, or that belong to the connection, cannot be set.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9-]+$')`,message="write the name of a header, such as X-Team: letters, digits and -"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['authorization','proxy-authorization','x-api-key','api-key','cookie','host','content-length','content-type','transfer-encoding','connection'])",message="this header cannot be set here: give the API key by spec.credentials"
	Name string `json:"name"`

	// Value of the header. It is not secret: users who may read the Model can read it.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[ -~]*$')`,message="write the value in plain ASCII, on one line"
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

// ModelSpec says how to reach a model.
// +kubebuilder:validation:XValidation:rule="self.provider != 'scripted' || has(self.script) || (has(self.capabilities) && has(self.capabilities.embeddings) && self.capabilities.embeddings)",message="a scripted model needs spec.script, the steps to play, unless it is one for embeddings (spec.capabilities.embeddings)"
// +kubebuilder:validation:XValidation:rule="self.provider == 'scripted' || !has(self.script)",message="spec.script belongs to provider scripted only"
// +kubebuilder:validation:XValidation:rule="self.provider == 'scripted' || (has(self.model) && size(self.model) > 0)",message="every provider except scripted needs spec.model: the model id that the endpoint knows"
// +kubebuilder:validation:XValidation:rule="!has(self.sessions) || self.provider == 'scripted' || (has(self.api) && self.api == 'responses')",message="spec.sessions belongs to api responses of provider openai, and to provider scripted"
// +kubebuilder:validation:XValidation:rule="self.provider == 'openai' || !has(self.api)",message="spec.api belongs to provider openai only"
// +kubebuilder:validation:XValidation:rule="self.provider != 'scripted' || (!has(self.endpoint) && !has(self.credentials) && !has(self.headers))",message="a scripted model has no endpoint, no credentials and no headers"
type ModelSpec struct {
	// Provider of the model.
	Provider ModelProvider `json:"provider"`

	// API of provider openai that is used; chat when absent.
	// +optional
	API ModelAPI `json:"api,omitempty"`

	// Model is the id that the endpoint knows, for example "gpt-4o".
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Model string `json:"model,omitempty"`

	// Endpoint is the base URL: "https://api.openai.com/v1" when absent for provider openai, "https://api.anthropic.com"
	// for provider anthropic. Redirects to another host are not followed.
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^https?://[^\s]+$')`,message="write a whole URL without spaces, such as https://api.openai.com/v1"
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// Credentials selects the Secret key that holds the API key.
	// +optional
	Credentials *ModelCredentials `json:"credentials,omitempty"`

	// Timeout of one model call, streaming included.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="give a duration from 1ms to 24h such as 120s"
	// +kubebuilder:default="120s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// IdleTimeout is how long the model may send nothing, before its first word or between two words. When it is absent,
	// only timeout limits that.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="give a duration from 1ms to 24h such as 30s, or leave it out for no bound but timeout"
	// +optional
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// Headers of each request, beside those of the protocol.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Headers []ModelHeader `json:"headers,omitempty"`

	// Sessions: whether the provider keeps the conversation, so that each call sends only what is new (api responses of
	// provider openai; a scripted model plays sessions where this is true). The thread's log keeps everything: when the
	// provider has forgotten the conversation, Skein sends all of it. When absent, true for OpenAI's own endpoint and
	// false for any other; false also asks the provider to keep nothing.
	// +optional
	Sessions *bool `json:"sessions,omitempty"`

	// MaxRetries of a call that failed for a temporary reason (429, 5xx, connection refused or broken). Skein waits
	// as long as the provider asks, a minute at most, or else with backoff.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	// +kubebuilder:default=2
	// +optional
	MaxRetries *int32 `json:"maxRetries,omitempty"`

	// Options passed with each call.
	// +optional
	Options *ModelOptions `json:"options,omitempty"`

	// Capabilities of the model.
	// +optional
	Capabilities *ModelCapabilities `json:"capabilities,omitempty"`

	// Pricing of the model. With it, the usage of every answer says what the answer cost.
	// +optional
	Pricing *ModelPricing `json:"pricing,omitempty"`

	// Limits of the calls of this Model, over all replicas of the manager. Calls beyond them wait for their turn.
	// +optional
	Limits *ModelLimits `json:"limits,omitempty"`

	// Fallbacks are the Models that are called, in this order, when this one fails for a reason that may not hold for
	// another. The fallbacks of fallbacks are not called.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	Fallbacks []LocalRef `json:"fallbacks,omitempty"`

	// Script of a scripted model.
	// +optional
	Script *ModelScript `json:"script,omitempty"`
}

// ModelCredentials says where the API key is.
type ModelCredentials struct {
	// SecretKeyRef selects a key of a Secret in the same namespace.
	SecretKeyRef corev1.SecretKeySelector `json:"secretKeyRef"`
}

// ModelOptions are the sampling options; absent ones are left to the model's defaults.
type ModelOptions struct {
	// Temperature as a decimal string, "0" to "2".
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([01]([.][0-9]+)?|2([.]0+)?)$')`,message="write a decimal from 0 to 2 as a text, such as '0.7'"
	// +optional
	Temperature string `json:"temperature,omitempty"`

	// TopP as a decimal string, "0" to "1".
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.matches('^(0([.][0-9]+)?|1([.]0+)?)$')`,message="write a decimal from 0 to 1 as a text, such as '0.9'"
	// +optional
	TopP string `json:"topP,omitempty"`

	// MaxTokens of one answer.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxTokens *int32 `json:"maxTokens,omitempty"`
}

// ModelScript is what a scripted model plays. For each call it plays the first step that matches and is not used up.
// The conversation itself shows which steps were played, so a script continues correctly after a crash.
// +kubebuilder:validation:XValidation:rule="has(self.steps) != has(self.configMapKeyRef)",message="set exactly one of steps and configMapKeyRef"
type ModelScript struct {
	// Steps of the script.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	// +optional
	Steps []ScriptStep `json:"steps,omitempty"`

	// ConfigMapKeyRef selects a ConfigMap key that holds the steps as a YAML list.
	// +optional
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`
}

// ScriptStep is one answer of a scripted model.
type ScriptStep struct {
	// When says which calls this step answers; every call when absent.
	// +optional
	When *ScriptMatch `json:"when,omitempty"`

	// Times that this step may be played in one thread; 0 = any number.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=1
	// +optional
	Times *int32 `json:"times,omitempty"`

	// Content of the answer: a Go template. It has `.Last` (the last message: .Role, .Content, .Name), `.Arguments`,
	// `.Session` (the session that this call continues, or nothing) and `.NewMessages` (how many messages that session
	// has not seen). Its functions are `toolResult "name"` (the newest result of that tool, decoded from JSON when it is
	// JSON), `fromJSON` and `toJSON`.
	// +optional
	Content string `json:"content,omitempty"`

	// ToolCalls of the answer.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	ToolCalls []ScriptToolCall `json:"toolCalls,omitempty"`

	// Latency before the answer.
	// +optional
	Latency *metav1.Duration `json:"latency,omitempty"`

	// ChunkDelay between two streamed pieces of Content; 0 sends it whole.
	// +optional
	ChunkDelay *metav1.Duration `json:"chunkDelay,omitempty"`

	// Error makes the call fail with this text instead of answering.
	// +optional
	Error string `json:"error,omitempty"`

	// Status that goes with Error, as of an HTTP server: 429, 408, 409 and those from 500 on are tried again.
	// +kubebuilder:validation:Minimum=400
	// +kubebuilder:validation:Maximum=599
	// +optional
	Status int32 `json:"status,omitempty"`

	// RetryAfter is how long the model asks to wait when it fails.
	// +optional
	RetryAfter *metav1.Duration `json:"retryAfter,omitempty"`

	// Failures is how many tries of a call fail with Error before one is answered; all of them when absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +optional
	Failures *int32 `json:"failures,omitempty"`

	// BreaksAfter ends the connection after so many characters of Content. With failures, it does so in that many tries.
	// +kubebuilder:validation:Minimum=0
	// +optional
	BreaksAfter *int32 `json:"breaksAfter,omitempty"`

	// Reasoning that comes before the answer: a template like Content.
	// +optional
	Reasoning string `json:"reasoning,omitempty"`

	// Refused says that Content is the model's refusal.
	// +optional
	Refused bool `json:"refused,omitempty"`

	// FinishReason of the answer; stop, or tool_calls, when absent.
	// +kubebuilder:validation:Enum=stop;length;tool_calls;content_filter
	// +optional
	FinishReason string `json:"finishReason,omitempty"`

	// Usage that the answer reports.
	// +optional
	Usage *ScriptUsage `json:"usage,omitempty"`

	// ForgetsSession refuses to continue a session. Skein then repeats the call with the whole conversation.
	// +optional
	ForgetsSession bool `json:"forgetsSession,omitempty"`
}

// ScriptUsage is the usage of a scripted answer, in tokens.
type ScriptUsage struct {
	// InputTokens are all that were read, those of the cache included.
	// +kubebuilder:validation:Minimum=0
	// +optional
	InputTokens int64 `json:"inputTokens,omitempty"`
	// OutputTokens are all that were written, those of reasoning included.
	// +kubebuilder:validation:Minimum=0
	// +optional
	OutputTokens int64 `json:"outputTokens,omitempty"`
	// CachedTokens were read from a cache.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CachedTokens int64 `json:"cachedTokens,omitempty"`
	// CacheWriteTokens were put into a cache.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`
	// ReasoningTokens were spent on reasoning.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReasoningTokens int64 `json:"reasoningTokens,omitempty"`
}

// ScriptMatch says which calls a step answers; all given conditions must hold.
type ScriptMatch struct {
	// Role of the last message.
	// +kubebuilder:validation:Enum=system;user;assistant;tool
	// +optional
	Role string `json:"role,omitempty"`

	// Matches is an RE2 expression that the content of the last message must match.
	// +optional
	Matches string `json:"matches,omitempty"`

	// Tool is the name of the tool that the last message is a result of.
	// +optional
	Tool string `json:"tool,omitempty"`
}

// ScriptToolCall is a tool call of a scripted answer.
type ScriptToolCall struct {
	// Name of the tool.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Arguments as an object; strings in it are templates like Content.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Arguments *runtime.RawExtension `json:"arguments,omitempty"`

	// RawArguments are sent unchanged, even if they are not valid JSON, to play a model that makes mistakes.
	// +optional
	RawArguments string `json:"rawArguments,omitempty"`
}

// Model is a definition: a language model and how to reach it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mdl,categories=skein
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.model`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Model struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec ModelSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DefinitionStatus `json:"status,omitempty"`
}

// ModelList is a list of Models.
// +kubebuilder:object:root=true
type ModelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Model `json:"items"`
}
