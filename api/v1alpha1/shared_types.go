package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// LocalRef names an object of a known kind in the same namespace.
type LocalRef struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// CodeSource is TypeScript or JavaScript, given inline or kept in a ConfigMap of the same namespace.
// +kubebuilder:validation:XValidation:rule="has(self.inline) != has(self.configMapKeyRef)",message="set exactly one of inline and configMapKeyRef, for the code"
type CodeSource struct {
	// Inline is the source text of one ES module whose default export is the definition
	// (defineTool, defineEffect, defineHook, defineThreadEndpoint).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	Inline string `json:"inline,omitempty"`

	// ConfigMapKeyRef selects the key of a ConfigMap that holds the source text. The key's ending tells
	// the language: .js and .mjs are JavaScript, anything else is TypeScript.
	// +optional
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`

	// Language of the inline source.
	// +kubebuilder:validation:Enum=typescript;javascript
	// +kubebuilder:default=typescript
	// +optional
	Language string `json:"language,omitempty"`
}
