package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ThreadGatewaySpec lets people without a Kubernetes identity talk to an agent over HTTP.
// +kubebuilder:validation:XValidation:rule="!(has(self.user) && has(self.idProvider))",message="write user or idProvider: one of them says which conversation a request means"
type ThreadGatewaySpec struct {
	// AgentRef names the Agent that answers. Conversations that have begun stay with the agent that they have.
	AgentRef LocalRef `json:"agentRef"`

	// EndpointRefs name the ThreadEndpoints that people may use in their own conversations, below v1/endpoints/. Others look as
	// if they did not exist.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	// +optional
	EndpointRefs []LocalRef `json:"endpointRefs,omitempty"`

	// SigningKeys are keys of Secrets, each of 16 bytes or more, that sign the ids of conversations. The first signs, and
	// all verify. To rotate, put a new key first, and remove the old one a week later: browsers that come back until then
	// get an id that the new key signs.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	SigningKeys []corev1.SecretKeySelector `json:"signingKeys"`

	// Strict answers 401 to requests with an id that is unsigned or does not verify. Otherwise such an id is ignored: the
	// cookie counts, and without it a new conversation begins.
	// +optional
	Strict bool `json:"strict,omitempty"`

	// CookieName is the name of the cookie that holds the id. Gateways below one host name need different names.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9_-]+$')`,message="write a name of letters, digits, - and _, such as atid"
	// +kubebuilder:default=atid
	// +optional
	CookieName string `json:"cookieName,omitempty"`

	// User makes the id of a conversation from the user, so that a user has one conversation on every device. Without it
	// each browser has one of its own.
	// +optional
	User *GatewayUser `json:"user,omitempty"`

	// IDProvider asks another service, or code, which conversation a request means. There is no fallback: a request for which
	// it gives no id is refused.
	// +optional
	IDProvider *GatewayIDProvider `json:"idProvider,omitempty"`

	// APIKeys are keys of Secrets, each of 16 bytes or more. When there are any, each request needs one of them, as
	// "Authorization: Bearer KEY". Otherwise that header does not count.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +optional
	APIKeys []corev1.SecretKeySelector `json:"apiKeys,omitempty"`

	// AllowedOrigins are the origins of web pages on other hosts that may use the gateway. None may when it is absent.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.all(o, o.matches(r'^https?://[a-z0-9.-]+(:[0-9]{1,5})?$'))`,message="write origins such as https://chat.example.com: scheme, host and port, without a path and without *"
	// +listType=set
	// +optional
	AllowedOrigins []string `json:"allowedOrigins,omitempty"`

	// AnswerTimeout is how long a request waits for the agent. The agent works on when it has passed.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="give a duration from 1s to 1h such as 2m"
	// +kubebuilder:default="2m"
	// +optional
	AnswerTimeout *metav1.Duration `json:"answerTimeout,omitempty"`

	// Limits bound what people may ask of each replica of the manager.
	// +optional
	Limits *GatewayLimits `json:"limits,omitempty"`
}

// GatewayUser says how a gateway knows its users.
type GatewayUser struct {
	// Header in which a proxy names the user that it has authenticated, such as X-User-Id. It counts only from addresses
	// that the manager's flag --gateway-trusted-proxies lists; requests without it are answered with 401.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9-]+$') && !(self.lowerAscii() in ['cookie', 'authorization', 'x-thread-id'])`,message="write the name of a header such as X-User-Id: letters, digits and -, and not Cookie, Authorization or X-Thread-Id"
	Header string `json:"header"`

	// HashKey is a key of a Secret, of 16 bytes or more. Ids are made from users with it, so they cannot be guessed.
	// With another key all users begin new conversations.
	HashKey corev1.SecretKeySelector `json:"hashKey"`
}

// GatewayIDProvider says who knows which conversation a request means.
// +kubebuilder:validation:XValidation:rule="has(self.http) != has(self.code)",message="write either http or code: one of them makes the ids"
type GatewayIDProvider struct {
	// HTTP is a service that is asked at each request.
	// +optional
	HTTP *GatewayHTTPIDs `json:"http,omitempty"`

	// Code is asked at each request. It runs in a sandbox.
	// +optional
	Code *GatewayCodeIDs `json:"code,omitempty"`
}

// GatewayCodeIDs is code that makes ids.
type GatewayCodeIDs struct {
	// Source is an ES module that calls getThreadProvider().setThreadIDProvider({ getThreadId(appState, ctx) }) of
	// '@agentuity/runtime'.
	Source CodeSource `json:"source"`

	// Headers are the names of headers of requests that the code sees, such as X-User-Id.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.all(h, h.matches(r'^[A-Za-z0-9-]+$'))`,message="write names of headers such as X-User-Id: letters, digits and -"
	// +listType=set
	// +optional
	Headers []string `json:"headers,omitempty"`

	// SandboxPoolRef names the pool that the code runs in; the pool "default" when absent.
	// +optional
	SandboxPoolRef *LocalRef `json:"sandboxPoolRef,omitempty"`

	// Timeout is how long the code may take.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('30s')",message="give a duration from 100ms to 30s such as 5s"
	// +kubebuilder:default="5s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// GatewayHTTPIDs is a service that makes ids.
type GatewayHTTPIDs struct {
	// URL gets a POST with {"namespace", "gateway", "method", "path", "address", "headers", "threadId"} for each request, and
	// answers 200 with {"threadId": "thrd_..."}. threadId of the POST is the id that the client has proved to have, or empty.
	// The address must be one that tools of the namespace may reach.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`isURL(self) && url(self).getScheme() in ['https', 'http'] && url(self).getHostname() != '' && !self.contains('@')`,message="write an address such as https://ids.example.com/thread, without a user and a password"
	URL string `json:"url"`

	// Headers are the names of request headers that the service gets, such as Cookie or Authorization.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.all(h, h.matches(r'^[A-Za-z0-9-]+$'))`,message="write names of headers such as X-User-Id: letters, digits and -"
	// +listType=set
	// +optional
	Headers []string `json:"headers,omitempty"`

	// Token is a key of a Secret, of 16 bytes or more, that the service gets as "Authorization: Bearer TOKEN".
	// +optional
	Token *corev1.SecretKeySelector `json:"token,omitempty"`

	// Timeout is how long the service may take.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('30s')",message="give a duration from 100ms to 30s such as 5s"
	// +kubebuilder:default="5s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// GatewayLimits bound the use of a gateway. A request beyond one of them is answered with 429.
type GatewayLimits struct {
	// MessageBytes is the largest size of the body of a message, and of a request to an endpoint.
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=524288
	// +kubebuilder:default=65536
	// +optional
	MessageBytes int32 `json:"messageBytes,omitempty"`

	// ChatBytes is the largest size of the body of a chat completion, which brings the whole conversation each time.
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=8388608
	// +kubebuilder:default=1048576
	// +optional
	ChatBytes int32 `json:"chatBytes,omitempty"`

	// PerThread is the number of requests of one conversation in a minute.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=60
	// +optional
	PerThread int32 `json:"perThread,omitempty"`

	// PerAddress is the number of requests of one address in a minute; addresses of IPv6 count by their /64.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=120
	// +optional
	PerAddress int32 `json:"perAddress,omitempty"`

	// Total is the number of requests in a minute.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=6000
	// +optional
	Total int32 `json:"total,omitempty"`

	// NewThreads is the number of conversations that may begin in a minute.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=60
	// +optional
	NewThreads int32 `json:"newThreads,omitempty"`

	// Open is the number of requests that may wait for answers at once, and that of WebSockets that may be open at once.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=500
	// +optional
	Open int32 `json:"open,omitempty"`
}

// LabelGateway names the ThreadGateway that made a Thread.
const LabelGateway = "skein.dev/thread-gateway"

// ThreadGateway is a definition: it lets people without a Kubernetes identity talk to an agent. The manager serves it
// below /{namespace}/{name}/ of the address in its flag --gateway-bind-address.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tgw,categories=skein
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agentRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name is a label value: use 63 characters or fewer"
type ThreadGateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec ThreadGatewaySpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DefinitionStatus `json:"status,omitempty"`
}

// ThreadGatewayList is a list of ThreadGateways.
// +kubebuilder:object:root=true
type ThreadGatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ThreadGateway `json:"items"`
}
