package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// FileQuota limits the files of a thread. Existing files stay when a limit is lowered.
type FileQuota struct {
	// Bytes of all files together, such as 500Mi. 0 means no limit; the manager's default holds when it is absent.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isInteger() && !quantity(string(self)).isLessThan(quantity('0'))",message="give a whole number of bytes such as 500Mi, or 0 for no bound"
	// +optional
	Bytes *resource.Quantity `json:"bytes,omitempty"`

	// Files and folders together. 0 means no limit; the manager's default holds when it is absent.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Files *int64 `json:"files,omitempty"`
}
