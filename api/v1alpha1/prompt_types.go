package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PromptSpec is the system prompt of one side of an agent, with its model and tools.
// +kubebuilder:validation:XValidation:rule="!has(self.exposeAsTool) || !self.exposeAsTool || (has(self.toolDescription) && size(self.toolDescription) > 0)",message="a prompt with exposeAsTool: true needs toolDescription, the text by which a model decides to call it"
// +kubebuilder:validation:XValidation:rule="has(self.text) != has(self.parts)",message="set exactly one of text and parts"
// +kubebuilder:validation:XValidation:rule="!has(self.tools) || self.tools.all(t, !has(t.skill) || (has(self.skills) && self.skills.exists(s, s.name == t.skill)))",message="each skill that a tool names must be one of spec.skills: add it there, or correct spec.tools[].skill"
type PromptSpec struct {
	// Text of the system prompt. `{{ arguments.NAME }}` is replaced by the thread's argument of that name (NAME.KEY
	// for a part of it), and `{{ env.NAME }}` by the variable of that name. A missing one is replaced by nothing.
	// `\{{` stands for the braces themselves.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	Text string `json:"text,omitempty"`

	// Parts of the system prompt, instead of text. They follow each other with nothing in between.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Parts []PromptPart `json:"parts,omitempty"`

	// ModelRef names the Model that answers.
	ModelRef LocalRef `json:"modelRef"`

	// Tools that the model may call.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	Tools []PromptTool `json:"tools,omitempty"`

	// Skills that the model may activate. With them, it gets the tool skill.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Skills []PromptSkill `json:"skills,omitempty"`

	// ExposeAsTool lets other prompts of the namespace call this one as a tool.
	// +optional
	ExposeAsTool bool `json:"exposeAsTool,omitempty"`

	// ToolDescription is what a model reads to decide on calling this prompt.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	ToolDescription string `json:"toolDescription,omitempty"`

	// ToolChoice: with auto the model decides, with none it may call no tool, and with required it must call one.
	// +kubebuilder:validation:Enum=auto;none;required
	// +kubebuilder:default=auto
	// +optional
	ToolChoice string `json:"toolChoice,omitempty"`

	// ParallelToolCalls lets the calls of one step run at once; results keep the call order.
	// +optional
	ParallelToolCalls bool `json:"parallelToolCalls,omitempty"`

	// IncludeChat says whether the model reads the conversation from before the present turn. When it is absent, a
	// side of an agent reads it, and a prompt that is called as a tool does not.
	// +optional
	IncludeChat *bool `json:"includeChat,omitempty"`

	// IncludePastTools says whether the model reads the tool calls of earlier turns and their results. When it is
	// absent, a side of an agent reads them, and a prompt that is called as a tool does not.
	// +optional
	IncludePastTools *bool `json:"includePastTools,omitempty"`

	// RecentImageThreshold is the number of newest messages whose images a model with vision gets. Images of older
	// messages are only named.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=10
	// +optional
	RecentImageThreshold *int32 `json:"recentImageThreshold,omitempty"`

	// Compaction makes a model sum up older turns near the end of the model's window. Otherwise they are left out.
	// When it is absent, turns are summed up only by hand.
	// +optional
	Compaction *PromptCompaction `json:"compaction,omitempty"`

	// RequiredSchema is the JSON Schema of the arguments of a new thread, of a new subagent, and of a call of this
	// prompt as a tool.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	RequiredSchema *runtime.RawExtension `json:"requiredSchema,omitempty"`

	// ResponseSchema is the JSON Schema of an answer without tool calls, which is then JSON. If an answer does not
	// fit, the model is told once what is wrong. If the next one does not fit either, the turn fails.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	ResponseSchema *runtime.RawExtension `json:"responseSchema,omitempty"`

	// Reasoning of models that reason before they answer; the model's own default when absent.
	// +optional
	Reasoning *PromptReasoning `json:"reasoning,omitempty"`

	// Variables that this prompt uses and that get their values elsewhere. They are declared as in env, without a
	// value.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Variables []VariableDeclaration `json:"variables,omitempty"`

	// Env are variables of this prompt. Variables of the thread, its user and the instance take precedence.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(e, has(e.value) || has(e.valueFrom) || has(e.scoped) || has(e.required))",message="a variable needs value or valueFrom, unless it is scoped or required"
	// +optional
	Env []EnvVar `json:"env,omitempty"`

	// Hooks of threads while this prompt is in use, one for each moment. Each takes the place of the agent's hook of
	// the same name. While the prompt is called as a tool, the caller's hooks are used.
	// +listType=map
	// +listMapKey=hook
	// +kubebuilder:validation:MaxItems=12
	// +optional
	Hooks []Hook `json:"hooks,omitempty"`
}

// PromptPart is a piece of a system prompt.
// +kubebuilder:validation:XValidation:rule="[has(self.text), has(self.include), has(self.env), has(self.configMapKeyRef)].filter(given, given).size() == 1",message="give exactly one of text, include, env and configMapKeyRef"
// +kubebuilder:validation:XValidation:rule="!has(self.literal) || !self.literal || has(self.text) || has(self.configMapKeyRef)",message="literal is for text and configMapKeyRef: an include and a variable are never taken for anything else"
type PromptPart struct {
	// Text, with `{{ … }}` as in spec.text.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	Text string `json:"text,omitempty"`

	// Include names another Prompt, whose text, with all that it includes in turn, is put here. Its variables and env
	// count if this prompt has no value for them.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Include string `json:"include,omitempty"`

	// Env names a variable, whose value is put here. A secret one is shown only to the model.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z_][A-Za-z0-9_]*$')`,message="write the name of a variable: letters, digits and _, not beginning with a digit, such as API_KEY"
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Env string `json:"env,omitempty"`

	// ConfigMapKeyRef selects a key of a ConfigMap, whose text is put here, with `{{ … }}` as in spec.text.
	// +optional
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`

	// Literal leaves the text unchanged: `{{` has no meaning in it.
	// +optional
	Literal bool `json:"literal,omitempty"`
}

// CompactionMode says when older turns are summed up.
// +kubebuilder:validation:Enum=auto;manual;never
type CompactionMode string

// The modes.
const (
	// CompactionAuto sums up near the end of the model's window, and by hand.
	CompactionAuto CompactionMode = "auto"
	// CompactionManual sums up by hand only.
	CompactionManual CompactionMode = "manual"
	// CompactionNever sums up nothing, and summaries that exist are not read.
	CompactionNever CompactionMode = "never"
)

// Defaults of PromptCompaction, in percent.
const (
	DefaultCompactionThreshold = 80
	DefaultCompactionKeep      = 30
)

// PromptCompaction says when a model sums up older turns, and how.
// +kubebuilder:validation:XValidation:rule="!has(self.keep) || !has(self.threshold) || self.keep + 10 <= self.threshold",message="keep must be at least 10 below threshold, such as keep: 30 and threshold: 80: else the conversation would be summed up again with each step"
type PromptCompaction struct {
	// Mode: auto sums up near the end of the model's window, manual only by hand (kubectl skein compact), and never not
	// at all; summaries that exist are not read then.
	// +kubebuilder:default=auto
	// +optional
	Mode CompactionMode `json:"mode,omitempty"`

	// Threshold is how much of the model's window the conversation may fill before older turns are summed up, in
	// percent. The window is spec.capabilities.contextWindow of the Model, less the room for its answer.
	// +kubebuilder:validation:Minimum=20
	// +kubebuilder:validation:Maximum=95
	// +kubebuilder:default=80
	// +optional
	Threshold *int32 `json:"threshold,omitempty"`

	// Keep is how much of that window the newest messages may fill, which are not summed up, in percent.
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=80
	// +kubebuilder:default=30
	// +optional
	Keep *int32 `json:"keep,omitempty"`

	// ModelRef names the Model that writes the summary; the prompt's own when absent.
	// +optional
	ModelRef *LocalRef `json:"modelRef,omitempty"`

	// Instructions for the model that writes the summary, instead of Skein's own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	Instructions string `json:"instructions,omitempty"`
}

// PromptReasoning says how a model reasons before it answers.
// +kubebuilder:validation:XValidation:rule="!(has(self.effort) && has(self.maxTokens))",message="set at most one of effort and maxTokens"
type PromptReasoning struct {
	// Effort in the words of the model's provider.
	// +kubebuilder:validation:Enum=none;minimal;low;medium;high
	// +optional
	Effort string `json:"effort,omitempty"`

	// MaxTokens of reasoning for one answer.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxTokens *int64 `json:"maxTokens,omitempty"`

	// Exclude keeps the model's reasoning out of the log and the stream.
	// +optional
	Exclude bool `json:"exclude,omitempty"`
}

// VariableDeclaration says that a prompt uses a variable.
type VariableDeclaration struct {
	// Name of the variable.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z_][A-Za-z0-9_]*$')`,message="write the name of a variable: letters, digits and _, not beginning with a digit, such as API_KEY"
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// Type: a text may be shown, and a secret is kept out of all that Skein writes and shows. It is secret when
	// absent.
	// +optional
	Type EnvType `json:"type,omitempty"`

	// Required: a thread does not run until the variable has a value.
	// +optional
	Required bool `json:"required,omitempty"`

	// Scoped: it is not inherited from the parent's thread.
	// +optional
	Scoped bool `json:"scoped,omitempty"`

	// Description for the person who gives it a value.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`
}

// AgentToolMode says what a call of an agent as a tool does.
// +kubebuilder:validation:Enum=handoff;ask
type AgentToolMode string

// The modes.
const (
	// AgentToolHandoff passes the conversation to the agent, which goes on with it in the same thread.
	AgentToolHandoff AgentToolMode = "handoff"
	// AgentToolAsk gives the agent a fresh thread of its own; its result is the call's result.
	AgentToolAsk AgentToolMode = "ask"
)

// PromptTool is one tool, or one built-in family, that a prompt offers.
// +kubebuilder:validation:XValidation:rule="[has(self.name), has(self.builtin), has(self.agent), has(self.prompt)].filter(given, given).size() == 1",message="give exactly one of name (of a Tool object), builtin (a family of built-in tools), agent (an Agent with exposeAsTool) and prompt (a Prompt with exposeAsTool)"
// +kubebuilder:validation:XValidation:rule="has(self.prompt) || !(has(self.initUserMessageProperty) || has(self.includeTextResponse) || has(self.includeToolCalls) || has(self.includeErrors))",message="initUserMessageProperty, includeTextResponse, includeToolCalls and includeErrors are for prompt"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || has(self.agent)",message="mode is for agent: it says whether a call hands the conversation over or asks in a thread of its own"
// +kubebuilder:validation:XValidation:rule="has(self.agent) || !(has(self.ttlAfterFinished) || has(self.retain))",message="ttlAfterFinished and retain are for agent: they say what becomes of the thread of an agent that was asked"
type PromptTool struct {
	// Name of a Tool object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`

	// Builtin family.
	// +optional
	Builtin BuiltinTool `json:"builtin,omitempty"`

	// Agent to call as a tool; it needs exposeAsTool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Agent string `json:"agent,omitempty"`

	// Mode of a call of the agent: handoff, the default for ai_human, passes the conversation to it; ask gives it a
	// fresh thread of its own, whose result is the call's result. A dual_ai agent is always asked.
	// +optional
	Mode AgentToolMode `json:"mode,omitempty"`

	// TTLAfterFinished is how long after its result the thread of an agent that was asked is removed. When it is absent,
	// the thread stays as long as the one that asked.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('87600h')",message="give a duration from 0s to 87600h such as 24h, or leave it out to keep the threads as long as the one that asked"
	// +optional
	TTLAfterFinished *metav1.Duration `json:"ttlAfterFinished,omitempty"`

	// Retain says what happens to the conversation of a thread that ttlAfterFinished removes: Purge, the default, or Keep.
	// +optional
	Retain ChildRetention `json:"retain,omitempty"`

	// Prompt to call as a tool: its model answers, with its tools, within the same run. It needs
	// exposeAsTool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Prompt string `json:"prompt,omitempty"`

	// InitUserMessageProperty names the argument of the call that becomes the message that the called prompt answers;
	// "message" when absent. Without an argument of that name, the message is all arguments as JSON.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	InitUserMessageProperty string `json:"initUserMessageProperty,omitempty"`

	// IncludeTextResponse puts the answer of the called prompt into the call's result.
	// +optional
	IncludeTextResponse *bool `json:"includeTextResponse,omitempty"`

	// IncludeToolCalls puts the calls that the called prompt made, with their results, into the call's result.
	// +optional
	IncludeToolCalls *bool `json:"includeToolCalls,omitempty"`

	// IncludeErrors puts the error into the result when the called prompt fails. With false, the result says only
	// that it failed.
	// +optional
	IncludeErrors *bool `json:"includeErrors,omitempty"`

	// Skill that must be active on the thread before the tool, or the family, is offered: one of spec.skills.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,message="write the name of a skill: lower-case letters, digits and -, beginning and ending with a letter or digit, such as refunds-eu"
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Skill string `json:"skill,omitempty"`

	// RequiresApproval parks the run at each call of this tool, or of any of this family, until a person approves or
	// refuses it.
	// +optional
	RequiresApproval bool `json:"requiresApproval,omitempty"`

	// ApprovalTimeout refuses a call that has waited for a decision for so long; never when absent. It takes the place
	// of the Tool's own.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('87600h')",message="give a duration from 1s to 87600h such as 24h, or leave it out to wait for ever"
	// +optional
	ApprovalTimeout *metav1.Duration `json:"approvalTimeout,omitempty"`
}

// Prompt is a definition: system text, model and tools of one side.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pr,categories=skein
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.modelRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Prompt struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec PromptSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DefinitionStatus `json:"status,omitempty"`
}

// PromptList is a list of Prompts.
// +kubebuilder:object:root=true
type PromptList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Prompt `json:"items"`
}
