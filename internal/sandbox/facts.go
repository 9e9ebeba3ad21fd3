package sandbox

// Facts are what can be said about a module without running it. They omit whatever is not certain, so that a module
// that is refused because of them could not have run.
type Facts struct {
	// Imports lists its static imports, in order.
	Imports []Import `json:",omitempty"`
	// Default is its default export.
	Default Export
	// Undefined lists the names that its evaluation always reads and that neither the module nor a sandbox defines.
	Undefined []string `json:",omitempty"`
}

// Import is one static import.
type Import struct {
	Specifier string
	// Missing lists the names that the module does not export, for a module that sandboxes have.
	Missing []string `json:",omitempty"`
	// Unknown means that sandboxes do not have the module.
	Unknown bool `json:",omitempty"`
}

// Export is a default export.
type Export struct {
	// Kind is one of the kinds below, or what a define function makes of its argument: "tool", "effect", "hook",
	// "endpoint", "handler", "agent", "prompt" or "model".
	Kind string `json:",omitempty"`
	// Incomplete means that it is an object, or a define function called with one, that certainly has no function to
	// call.
	Incomplete bool `json:",omitempty"`
}

// The kinds of a default export that is not made by a define function.
const (
	ExportUnknown  = ""
	ExportNone     = "none"
	ExportValue    = "value" // neither a function nor an object
	ExportFunction = "function"
	ExportObject   = "object"
)
