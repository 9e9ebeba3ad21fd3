package v1alpha1

// AgentMemory makes what was said in an agent's threads searchable.
type AgentMemory struct {
	// EmbeddingModelRef names the Model that turns messages into vectors. It needs spec.capabilities.embeddings: true.
	EmbeddingModelRef LocalRef `json:"embeddingModelRef"`
}

// TitlePolicy says whether threads are given titles.
// +kubebuilder:validation:Enum=Auto;Never
type TitlePolicy string

// The policies.
const (
	TitleAuto  TitlePolicy = "Auto"
	TitleNever TitlePolicy = "Never"
)
