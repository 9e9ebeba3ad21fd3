package v1alpha1

import "encoding/json"

// ObservedThread is the value of a thread that a client observes. It has the members that the client asked for with
// include.
type ObservedThread struct {
	// Thread is the record of the thread. It is always there.
	Thread *ThreadRecord `json:"thread,omitempty"`
	// Messages are the newest messages, oldest first: at most 200, and at most 2 MiB of them unless one is larger. The
	// messages that wait are in queuedMessages of the record. Silent messages and those of called prompts are left out.
	Messages []Message `json:"messages,omitempty"`
	// State is the state of the thread.
	State map[string]json.RawMessage `json:"state,omitempty"`
	// Values are the key-values: the first 100 keys, of which a value of more than 64 KiB is left out.
	Values map[string]json.RawMessage `json:"values,omitempty"`
}

// The values of the parameter include of GET observe.
const (
	ObserveThread   = "thread"
	ObserveMessages = "messages"
	ObserveState    = "state"
	ObserveValues   = "values"
)

// Observation is one message of GET observe: a value first, then patches. As a server-sent event, its name is value or
// patch. Over a WebSocket, each text message is this object.
type Observation struct {
	// V is the version of the thread. It grows, and versions may be left out.
	V int64 `json:"v"`
	// Value is an ObservedThread. It takes the place of what the client has.
	Value json.RawMessage `json:"value,omitempty"`
	// Patch is a JSON Patch (RFC 6902) that changes the last value into the present one. All of it is applied, in order.
	Patch json.RawMessage `json:"patch,omitempty"`
}

// Names of the server-sent events with an Observation.
const (
	ObserveValueEvent = "value"
	ObservePatchEvent = "patch"
)

// ObserveSubprotocol is the WebSocket subprotocol of GET observe. See EventsSubprotocol.
const ObserveSubprotocol = "v1alpha1.observe.runtime.skein.dev"

// FlushedVersion is the answer of GET flush: the thread has reached a version, and that is on disk.
type FlushedVersion struct {
	// V is the version of the thread, the one that was asked for or a later one.
	V int64 `json:"v"`
}

// Kinds in discovery.
const (
	KindObservation    = "Observation"
	KindFlushedVersion = "FlushedVersion"
)
