package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PromptSpec is what one side of an agent is told and may use (SPEC AGT-05).
type PromptSpec struct {
	// Text of the system prompt. `{{ arguments.NAME }}` is replaced by the thread's argument of that name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Text string `json:"text"`

	// ModelRef names the Model that answers.
	ModelRef LocalRef `json:"modelRef"`

	// Tools that the model may call.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	Tools []PromptTool `json:"tools,omitempty"`

	// ToolChoice: auto lets the model decide, none forbids tools, required demands a call.
	// +kubebuilder:validation:Enum=auto;none;required
	// +kubebuilder:default=auto
	// +optional
	ToolChoice string `json:"toolChoice,omitempty"`

	// ParallelToolCalls lets the calls of one step run at once; results keep the call order.
	// +optional
	ParallelToolCalls bool `json:"parallelToolCalls,omitempty"`

	// Env are variables of this prompt; those of the thread, its user and the instance count before them.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(e, has(e.value) || has(e.valueFrom) || has(e.scoped) || has(e.required))",message="a variable needs value or valueFrom, unless it is scoped or required"
	// +optional
	Env []EnvVar `json:"env,omitempty"`

	// Hooks of threads while this prompt is in use, one for each moment; each takes the place of the agent's hook of
	// the same name (SPEC HOK-01).
	// +listType=map
	// +listMapKey=hook
	// +kubebuilder:validation:MaxItems=12
	// +optional
	Hooks []Hook `json:"hooks,omitempty"`
}

// BuiltinTool names a tool, or a family of tools, that Skein has built in (SPEC TOL-02).
// +kubebuilder:validation:Enum=files;code;effects;subagents;kv;wait
type BuiltinTool string

// The built-in families.
const (
	// BuiltinFiles: read_file, write_file, list_files, delete_file, find_files, grep_files.
	BuiltinFiles BuiltinTool = "files"
	// BuiltinCode: run_code.
	BuiltinCode BuiltinTool = "code"
	// BuiltinEffects: schedule_effect, list_effects, cancel_effect.
	BuiltinEffects BuiltinTool = "effects"
	// BuiltinSubagents: subagent_create, subagent_message.
	BuiltinSubagents BuiltinTool = "subagents"
	// BuiltinKV: get_value, set_value.
	BuiltinKV BuiltinTool = "kv"
	// BuiltinWait: wait, which parks the run for a time.
	BuiltinWait BuiltinTool = "wait"
)

// PromptTool is one tool, or one built-in family, that a prompt offers.
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.builtin)",message="give either name (of a Tool object) or builtin (a family of built-in tools), not both and not neither"
type PromptTool struct {
	// Name of a Tool object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`

	// Builtin family.
	// +optional
	Builtin BuiltinTool `json:"builtin,omitempty"`

	// RequiresApproval parks the run at each call of this tool, or of any of this family, until a person approves or
	// refuses it (SPEC RUN-11).
	// +optional
	RequiresApproval bool `json:"requiresApproval,omitempty"`

	// ApprovalTimeout refuses a call that nobody has decided on for so long; never when absent. It takes the place of
	// the Tool's own.
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

	Spec   PromptSpec       `json:"spec"`
	Status DefinitionStatus `json:"status,omitempty"`
}

// PromptList is a list of Prompts.
// +kubebuilder:object:root=true
type PromptList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Prompt `json:"items"`
}
