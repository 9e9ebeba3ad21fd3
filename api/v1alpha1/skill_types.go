package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PromptSkill is something that a model can learn to do when it needs to: it reads the description with
// every step, and the instructions when it activates the skill. That is recorded on the thread, once per name.
// +kubebuilder:validation:XValidation:rule="has(self.description) || has(self.instructions.configMapKeyRef)",message="a skill needs a description, by which a model decides to activate it; only a text of a ConfigMap may bring its own, as front matter"
type PromptSkill struct {
	// Name of the skill, as the model and the record of the thread have it. A skill of the same name in another prompt
	// is the same skill to a thread: active in one it is active in all.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,message="write the name of a skill: lower-case letters, digits and -, beginning and ending with a letter or digit, such as refunds-eu"
	Name string `json:"name"`

	// Description of what the skill is for. When it is absent it is the description in the front matter of the text.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`

	// Instructions that the model reads when it activates the skill.
	Instructions SkillText `json:"instructions"`

	// Parameters is the JSON Schema of the arguments that the skill is activated with; any object when absent.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
}

// SkillText is the text of a skill, given inline or kept in a ConfigMap of the same namespace. It may be a SKILL.md: the
// front matter, which is YAML between two lines of three dashes, is taken off.
// +kubebuilder:validation:XValidation:rule="has(self.inline) != has(self.configMapKeyRef)",message="set exactly one of inline and configMapKeyRef, for the instructions"
type SkillText struct {
	// Inline text.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	// +optional
	Inline string `json:"inline,omitempty"`

	// ConfigMapKeyRef selects the key of a ConfigMap that holds the text, of at most 128 KiB.
	// +optional
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`
}
