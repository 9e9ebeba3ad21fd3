package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// HTTPTool is a request that a call makes. The text of url, header values and body may hold `{{ arguments.NAME }}` and
// `{{ env.NAME }}`: an argument of the call, a variable of the thread. Each value is escaped for the place that it
// stands in. The request goes to no link-local or metadata address, and to a private one only when the Namespace or the
// manager's --tool-private-hosts opens the host.
type HTTPTool struct {
	// Method of the request.
	// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;PATCH;DELETE
	// +kubebuilder:default=GET
	// +optional
	Method string `json:"method,omitempty"`

	// URL of the request, without placeholders in scheme, host and port. A parameter of the query whose placeholder has
	// no value is left out; in the path each needs one.
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^https?://[^\s/?#{@]+([/?#].*)?$')`,message="write a whole URL with plain scheme, host and port, such as https://shop.example.com/orders/{{ arguments.id }}: placeholders stand in the path and the query alone, and credentials in auth"
	// +kubebuilder:validation:MaxLength=4096
	URL string `json:"url"`

	// Headers of the request.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Headers []ToolHeader `json:"headers,omitempty"`

	// Auth holds the credentials of each request.
	// +optional
	Auth *ToolAuth `json:"auth,omitempty"`

	// Body of the request. When absent, POST, PUT and PATCH send the arguments as JSON, and other methods nothing.
	// +optional
	Body *HTTPBody `json:"body,omitempty"`

	// Signing lets the server verify that a request is from this tool and unchanged.
	// +optional
	Signing *HTTPSigning `json:"signing,omitempty"`

	// Result is the part of the answer that the model reads; the whole body when absent.
	// +optional
	Result *HTTPResult `json:"result,omitempty"`

	// AllowedHosts that redirects may lead to beside the url's own: names, or "*.example.com" for all names below one.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:MinLength=1
	// +listType=set
	// +optional
	AllowedHosts []string `json:"allowedHosts,omitempty"`

	// MaxRedirects that are followed. Headers that come from Secrets, auth and the signature go to the url's own scheme,
	// host and port only.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	// +kubebuilder:default=5
	// +optional
	MaxRedirects *int32 `json:"maxRedirects,omitempty"`

	// MaxResponseBytes of an answer's body; a longer one is an error.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777216
	// +kubebuilder:default=1048576
	// +optional
	MaxResponseBytes *int64 `json:"maxResponseBytes,omitempty"`
}

// ToolHeader is a header of a request.
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.secretKeyRef)",message="set exactly one of value and secretKeyRef"
type ToolHeader struct {
	// Name of the header.
	// +kubebuilder:validation:XValidation:rule=`self.matches(r"^[A-Za-z0-9!#$%&'*+.^_|~-]+$")`,message="write the name of a header, such as X-Api-Key: letters, digits and !#$%&'*+.^_|~-, without spaces and colons"
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['host','content-length','transfer-encoding','connection','upgrade','te','trailer','idempotency-key','mcp-session-id','mcp-protocol-version','skein-signature','skein-timestamp','content-digest'])",message="this header is set by Skein: leave it out"
	Name string `json:"name"`

	// Value in clear text. In HTTP tools it may hold placeholders.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Value *string `json:"value,omitempty"`

	// SecretKeyRef selects a key of a Secret in the same namespace.
	// +optional
	SecretKeyRef *corev1.SecretKeySelector `json:"secretKeyRef,omitempty"`
}

// ToolAuth holds the credentials of each request.
// +kubebuilder:validation:XValidation:rule="(has(self.basic)?1:0)+(has(self.bearer)?1:0)+(has(self.header)?1:0) == 1",message="give exactly one of basic, bearer and header"
type ToolAuth struct {
	// Basic is a name and a password.
	// +optional
	Basic *ToolBasicAuth `json:"basic,omitempty"`

	// Bearer is a token in the header Authorization.
	// +optional
	Bearer *ToolSecret `json:"bearer,omitempty"`

	// Header is a key in a header of its own.
	// +optional
	Header *ToolAuthHeader `json:"header,omitempty"`
}

// ToolBasicAuth is a name and a password (RFC 7617).
type ToolBasicAuth struct {
	// Username in clear text.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule=`!self.contains(':')`,message="write the user's name without a colon, which Basic authentication puts between name and password"
	// +kubebuilder:validation:MaxLength=256
	Username string `json:"username"`

	// SecretKeyRef selects the key of a Secret in the same namespace that holds the password.
	SecretKeyRef corev1.SecretKeySelector `json:"secretKeyRef"`
}

// ToolSecret is a value in a Secret.
type ToolSecret struct {
	// SecretKeyRef selects a key of a Secret in the same namespace.
	SecretKeyRef corev1.SecretKeySelector `json:"secretKeyRef"`
}

// ToolAuthHeader is a key in a header.
type ToolAuthHeader struct {
	// Name of the header.
	// +kubebuilder:validation:XValidation:rule=`self.matches(r"^[A-Za-z0-9!#$%&'*+.^_|~-]+$")`,message="write the name of a header, such as X-Api-Key: letters, digits and !#$%&'*+.^_|~-, without spaces and colons"
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// SecretKeyRef selects a key of a Secret in the same namespace.
	SecretKeyRef corev1.SecretKeySelector `json:"secretKeyRef"`
}

// HTTPBody is the body of a request.
type HTTPBody struct {
	// Template of the body, with placeholders. In JSON one within quotes is filled in as part of the string, any other as
	// a JSON value, null when the argument is absent.
	// +kubebuilder:validation:MaxLength=65536
	Template string `json:"template"`

	// ContentType of the body.
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(;.*)?$')`,message="write a media type, such as application/json or text/plain; charset=utf-8"
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:default="application/json"
	// +optional
	ContentType string `json:"contentType,omitempty"`
}

// HTTPSigning adds three headers: Skein-Timestamp (seconds since 1970), Content-Digest (RFC 9530, SHA-256 of the body)
// and Skein-Signature. The signature is "v1=" and the hexadecimal HMAC-SHA256 of four lines, joined by line feeds: the
// method, the path with its query, the timestamp, and the hexadecimal SHA-256 of the body.
type HTTPSigning struct {
	// SecretKeyRef selects the key of a Secret in the same namespace that holds the signing key.
	SecretKeyRef corev1.SecretKeySelector `json:"secretKeyRef"`
}

// HTTPResult is the part of an answer that the model reads.
// +kubebuilder:validation:XValidation:rule="has(self.jsonPath) != has(self.template)",message="set exactly one of jsonPath and template"
type HTTPResult struct {
	// JSONPath selects parts of a JSON body, in the syntax of kubectl: "{.items[*].name}". One match is returned as it
	// is, several as a list.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	JSONPath string `json:"jsonPath,omitempty"`

	// Template of the text, with the placeholders `{{ status }}`, `{{ body }}`, `{{ body.a.b }}` and `{{ headers.NAME }}`.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Template string `json:"template,omitempty"`
}
