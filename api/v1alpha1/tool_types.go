package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ToolSpec is something that a model may call: code that runs in the thread's sandbox, an HTTP request, or the tools of
// an MCP server.
// +kubebuilder:validation:XValidation:rule="(has(self.code)?1:0)+(has(self.http)?1:0)+(has(self.mcp)?1:0) == 1",message="give exactly one of code, http and mcp"
// +kubebuilder:validation:XValidation:rule="has(self.mcp) || (has(self.description) && size(self.description) > 0)",message="give a description: the model reads it"
// +kubebuilder:validation:XValidation:rule="!has(self.mcp) || !has(self.parameters)",message="the tools of an MCP server have the parameters that the server declares: leave parameters out"
type ToolSpec struct {
	// Description that the model reads. Those of an MCP server's tools come from the server.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Description string `json:"description,omitempty"`

	// Parameters is the JSON Schema of the arguments, an object schema. Arguments are checked against it
	// before the call. When absent, the schema that the code declares with zod is used, else any object.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Code whose default export is the tool: defineTool({ description, args, execute(state, args) }).
	// +optional
	Code *CodeSource `json:"code,omitempty"`

	// HTTP is a request that each call makes.
	// +optional
	HTTP *HTTPTool `json:"http,omitempty"`

	// MCP is a server whose tools are offered.
	// +optional
	MCP *MCPServer `json:"mcp,omitempty"`

	// Timeout of one call.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="give a duration from 1ms to 24h such as 60s"
	// +kubebuilder:default="60s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// RequiresApproval parks the run at each call until a person approves or refuses it. A prompt may
	// ask for it too, for a tool that does not.
	// +optional
	RequiresApproval bool `json:"requiresApproval,omitempty"`

	// ApprovalTimeout refuses a call that has waited for a decision for so long; never when absent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('87600h')",message="give a duration from 1s to 87600h such as 24h, or leave it out to wait for ever"
	// +optional
	ApprovalTimeout *metav1.Duration `json:"approvalTimeout,omitempty"`
}

// Tool is a definition: something that a model may call. The model calls it by the object's name with
// each "-" and "." turned into "_".
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tl,categories=skein
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Packable",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Packable")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Tool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec ToolSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DefinitionStatus `json:"status,omitempty"`
}

// ToolList is a list of Tools.
// +kubebuilder:object:root=true
type ToolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tool `json:"items"`
}
