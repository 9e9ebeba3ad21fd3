package v1alpha1

// HandoffPolicy says whether a conversation may pass from one agent to another.
// +kubebuilder:validation:Enum=Allow;Never
type HandoffPolicy string

// The handoff policies.
const (
	// HandoffAllow lets a conversation pass to another agent.
	HandoffAllow HandoffPolicy = "Allow"
	// HandoffNever keeps a conversation with its agent.
	HandoffNever HandoffPolicy = "Never"
)

// MayHandOver reports whether a conversation may leave its agent. The Thread's policy takes precedence over the
// agent's, and the default is Allow.
func MayHandOver(ofThread, ofAgent HandoffPolicy) bool {
	if ofThread != "" {
		return ofThread != HandoffNever
	}
	return ofAgent != HandoffNever
}
