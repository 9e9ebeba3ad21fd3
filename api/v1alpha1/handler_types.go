package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SideHandler is a side of an agent that is written in code. Each turn of the side is one call of it.
type SideHandler struct {
	// Code is an ES module whose default export is what createAgent of '@agentuity/runtime' gives.
	Code CodeSource `json:"code"`

	// Models that the code may call, by the names that the code uses.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Models []HandlerModel `json:"models,omitempty"`

	// Timeout of one call, including the answers of models; a minute when absent. The pool's maxWallTime bounds it
	// too.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="timeout must be from 100ms to 1h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// HandlerModel is a Model and the name by which code calls it.
type HandlerModel struct {
	// Name that the code uses: gpt-5-mini for openai('gpt-5-mini'), or openai/gpt-5-mini to mean only this provider's
	// model.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Name string `json:"name"`

	// ModelRef names the Model that answers.
	ModelRef LocalRef `json:"modelRef"`
}
