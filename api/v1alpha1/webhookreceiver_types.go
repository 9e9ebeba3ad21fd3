package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookReceiverSpec turns signed deliveries from outside into messages.
// +kubebuilder:validation:XValidation:rule="has(self.threadRef) != has(self.agentRef)",message="write either threadRef, for messages in one thread, or agentRef, for a thread for each delivery"
type WebhookReceiverSpec struct {
	// Form says how deliveries are signed. GitHub is X-Hub-Signature-256 with X-GitHub-Delivery as the id. StandardWebhooks
	// is webhook-id, webhook-timestamp and webhook-signature, as standardwebhooks.com describes them.
	Form WebhookForm `json:"form"`

	// SigningKeys are keys of Secrets, each of 16 bytes or more, or whsec_ and base64 for StandardWebhooks. A delivery that
	// verifies with one of them is taken.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	SigningKeys []corev1.SecretKeySelector `json:"signingKeys"`

	// ThreadRef names the Thread to which deliveries are queued as messages.
	// +optional
	ThreadRef *LocalRef `json:"threadRef,omitempty"`

	// AgentRef names the Agent of the threads that are made, one for each delivery.
	// +optional
	AgentRef *LocalRef `json:"agentRef,omitempty"`

	// MaxBytes is the largest size of a delivery. Larger ones are answered with 413.
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=250000
	// +kubebuilder:default=250000
	// +optional
	MaxBytes int32 `json:"maxBytes,omitempty"`

	// PerMinute is how many deliveries with a valid signature each replica of the manager takes in a minute. Before the signature
	// is checked, each address may make as many requests, so that forged ones do not use up what the sender may send. More are
	// answered with 429.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=600
	// +optional
	PerMinute int32 `json:"perMinute,omitempty"`
}

// WebhookForm is a form of signed deliveries.
// +kubebuilder:validation:Enum=GitHub;StandardWebhooks
type WebhookForm string

// The forms of signed deliveries.
const (
	WebhookGitHub   WebhookForm = "GitHub"
	WebhookStandard WebhookForm = "StandardWebhooks"
)

// LabelReceiver names the WebhookReceiver that made a Thread.
const LabelReceiver = "skein.dev/webhook-receiver"

// WebhookReceiver is a definition: an address at which servers outside deliver what becomes messages. The manager serves it at
// /{namespace}/{name}/v1/webhook of the address in its flag --gateway-bind-address.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=skein
// +kubebuilder:printcolumn:name="Form",type=string,JSONPath=`.spec.form`
// +kubebuilder:printcolumn:name="Thread",type=string,JSONPath=`.spec.threadRef.name`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agentRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name is a label value: use 63 characters or fewer"
type WebhookReceiver struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec WebhookReceiverSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DefinitionStatus `json:"status,omitempty"`
}

// WebhookReceiverList is a list of WebhookReceivers.
// +kubebuilder:object:root=true
type WebhookReceiverList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WebhookReceiver `json:"items"`
}
