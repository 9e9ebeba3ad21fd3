package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookSpec says which events to send to which server.
type WebhookSpec struct {
	// URL gets a POST for each event.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`isURL(self) && url(self).getScheme() in ['https', 'http'] && url(self).getHostname() != '' && !self.contains('@')`,message="write an address such as https://ci.example.com/skein, without a user and a password"
	URL string `json:"url"`

	// Events that are sent: a run ended, a tool call waits for a person, or an effect failed after its last attempt.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +listType=set
	Events []WebhookEvent `json:"events"`

	// AgentRefs restricts the events to those of threads that these Agents run. Without it all threads of the namespace count.
	// +kubebuilder:validation:MaxItems=20
	// +listType=map
	// +listMapKey=name
	// +optional
	AgentRefs []LocalRef `json:"agentRefs,omitempty"`

	// SigningKeys are keys of Secrets, each of 16 bytes or more, or whsec_ and base64. Each delivery is signed with all of
	// them, so that a key can be changed while the server knows only one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	SigningKeys []corev1.SecretKeySelector `json:"signingKeys"`

	// MaxAttempts is how often a delivery is tried before it is given up. Dead deliveries are kept for 30 days and can be
	// redelivered.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +kubebuilder:default=8
	// +optional
	MaxAttempts int32 `json:"maxAttempts,omitempty"`
}

// WebhookEvent is an event that a Webhook sends.
// +kubebuilder:validation:Enum=run.ended;approval.wanted;effect.failed
type WebhookEvent string

// Webhook is a definition: Skein tells a server outside, by signed HTTP requests, what happens to the threads of the
// namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=skein
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Events",type=string,JSONPath=`.spec.events`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Webhook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec WebhookSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DefinitionStatus `json:"status,omitempty"`
}

// WebhookList is a list of Webhooks.
// +kubebuilder:object:root=true
type WebhookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Webhook `json:"items"`
}
