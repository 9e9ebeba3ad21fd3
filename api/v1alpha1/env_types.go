package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// EnvType says whether the value of a variable may be shown.
// +kubebuilder:validation:Enum=text;secret
type EnvType string

// The types of variables.
const (
	EnvText   EnvType = "text"
	EnvSecret EnvType = "secret"
)

// EnvVar is a variable that code reads with state.env.
// +kubebuilder:validation:XValidation:rule="!(has(self.value) && has(self.valueFrom))",message="set at most one of value and valueFrom"
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z_][A-Za-z0-9_]*$')`,message="write the name of a variable: letters, digits and _, not beginning with a digit, such as API_KEY"
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// Value in clear text. All users who may read this object can read it.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Value *string `json:"value,omitempty"`

	// ValueFrom takes the value from a Secret or a ConfigMap of the same namespace.
	// +optional
	ValueFrom *EnvVarSource `json:"valueFrom,omitempty"`

	// Type: a text may be shown, and a secret is kept out of all that Skein writes and shows. It is secret when
	// absent.
	// +optional
	Type EnvType `json:"type,omitempty"`

	// Scoped: a child thread does not inherit a variable that its agent graph marks as scoped. Agents and Prompts only.
	// +optional
	Scoped bool `json:"scoped,omitempty"`

	// Required: a thread does not run until the variable has a value. Agents and Prompts only.
	// +optional
	Required bool `json:"required,omitempty"`

	// Description for the person who gives it a value.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`
}

// EnvVarSource says where a value is stored.
// +kubebuilder:validation:XValidation:rule="has(self.secretKeyRef) != has(self.configMapKeyRef)",message="set exactly one of secretKeyRef and configMapKeyRef"
type EnvVarSource struct {
	// SecretKeyRef selects a key of a Secret.
	// +optional
	SecretKeyRef *corev1.SecretKeySelector `json:"secretKeyRef,omitempty"`

	// ConfigMapKeyRef selects a key of a ConfigMap.
	// +optional
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`
}

// Labels of the Secrets and ConfigMaps that hold variables of users and of the instance. Every key
// that is the name of a variable is one.
const (
	// LabelEnvScope is "user" or "instance".
	LabelEnvScope = "skein.dev/env-scope"
	// EnvScopeUser marks the variables of one user; LabelUser says of whom.
	EnvScopeUser = "user"
	// EnvScopeInstance marks the variables of all threads of the namespace.
	EnvScopeInstance = "instance"
	// LabelUser holds the value of UserLabel for the user's id.
	LabelUser = "skein.dev/user"
)

// UserLabel returns the value of LabelUser for a user: the id itself if it is a valid label value, otherwise
// "sha256." and the first 56 hex digits of its hash.
func UserLabel(userID string) string {
	if userID != "" && len(validation.IsValidLabelValue(userID)) == 0 {
		return userID
	}
	sum := sha256.Sum256([]byte(userID))
	return "sha256." + hex.EncodeToString(sum[:])[:56]
}
