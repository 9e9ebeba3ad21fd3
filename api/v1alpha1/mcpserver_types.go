package v1alpha1

// MCPTransport is how requests reach an MCP server.
// +kubebuilder:validation:Enum=streamable;sse
type MCPTransport string

// The transports.
const (
	// MCPStreamable is streamable HTTP.
	MCPStreamable MCPTransport = "streamable"
	// MCPSSE is HTTP with server-sent events, for older servers.
	MCPSSE MCPTransport = "sse"
)

// MCPServer is a server of the Model Context Protocol. Each of its tools is offered under a name of its
// own. It is reached under the same rules on addresses as HTTP tools.
type MCPServer struct {
	// URL of the server's endpoint.
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^https?://[^\s/?#{@]+([/?#]\S*)?$')`,message="write a whole URL without placeholders and spaces, such as https://mcp.example.com/mcp; credentials stand in auth"
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// Transport of the server.
	// +kubebuilder:default=streamable
	// +optional
	Transport MCPTransport `json:"transport,omitempty"`

	// Headers of each request.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Headers []ToolHeader `json:"headers,omitempty"`

	// Auth holds the credentials of each request.
	// +optional
	Auth *ToolAuth `json:"auth,omitempty"`

	// Tools of the server that are offered, by the server's names; all of them, up to 128, when absent.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	// +optional
	Tools []string `json:"tools,omitempty"`

	// Prefix of the names that the model reads. When absent it is the name of the Tool, with "_" for "-" and ".", and a
	// "_"; empty means none.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9_-]*$')`,message="write a prefix that models can call: letters, digits, _ and -, such as github_, or an empty text for none"
	// +kubebuilder:validation:MaxLength=40
	// +optional
	Prefix *string `json:"prefix,omitempty"`
}
