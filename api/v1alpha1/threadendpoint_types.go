package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndpointMethod is an HTTP method.
// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;PATCH;DELETE;OPTIONS
type EndpointMethod string

// ThreadEndpointSpec is code that answers HTTP requests under the URL of a thread.
type ThreadEndpointSpec struct {
	// Description for people.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Description string `json:"description,omitempty"`

	// Path below threads/{thread}/endpoints, such as /report, /report/[id] or /files/[*]. [name] stands for one
	// segment, [*] at the end for one or more. Of several that match, a text comes before [name] and that before
	// [*], segment by segment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^/$|^(/([A-Za-z0-9._~-]+|\[[A-Za-z_][A-Za-z0-9_]*\]))*(/\[\*\])?$')`,message="write a path such as /report, /report/[id] or /files/[*]: it begins with / and does not end with one, its segments are letters, digits and ._~- or a [name], and [*] comes last"
	Path string `json:"path"`

	// Methods that it answers. GET answers HEAD too; OPTIONS is answered by itself unless it is listed.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	// +kubebuilder:default={GET}
	// +listType=set
	// +optional
	Methods []EndpointMethod `json:"methods,omitempty"`

	// AgentRef limits it to threads of one agent; all threads of the namespace have it when absent. Of two with the
	// same path, that of the thread's agent comes first.
	// +optional
	AgentRef *LocalRef `json:"agentRef,omitempty"`

	// Code whose default export is the endpoint: defineThreadEndpoint(async (request, state, params) => new
	// Response(…)), or an object with a function for each method.
	Code CodeSource `json:"code"`

	// Timeout of one request, a streamed answer included. Through the Kubernetes API a request takes a minute at most.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="give a duration from 1ms to 24h such as 30s"
	// +kubebuilder:default="30s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// MethodNames returns the methods that the endpoint answers: GET if the spec names none.
func (s *ThreadEndpointSpec) MethodNames() []string {
	if len(s.Methods) == 0 {
		return []string{"GET"}
	}
	names := make([]string, len(s.Methods))
	for i, m := range s.Methods {
		names[i] = string(m)
	}
	return names
}

// ThreadEndpoint is a definition: an HTTP API of threads, written in code.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tep,categories=skein
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.spec.path`
// +kubebuilder:printcolumn:name="Methods",type=string,JSONPath=`.spec.methods`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agentRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ThreadEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec ThreadEndpointSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DefinitionStatus `json:"status,omitempty"`
}

// ThreadEndpointList is a list of ThreadEndpoints.
// +kubebuilder:object:root=true
type ThreadEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ThreadEndpoint `json:"items"`
}
