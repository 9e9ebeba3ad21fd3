package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// FileQuota bounds what a thread has in files. What is there already stays when a bound is lowered.
type FileQuota struct {
	// Bytes of all files together, such as 500Mi. 0 is without bound; the manager's default holds when it is absent.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isInteger() && !quantity(string(self)).isLessThan(quantity('0'))",message="give a whole number of bytes such as 500Mi, or 0 for no bound"
	// +optional
	Bytes *resource.Quantity `json:"bytes,omitempty"`

	// Files and folders together. 0 is without bound; the manager's default holds when it is absent.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Files *int64 `json:"files,omitempty"`
}
