package sandbox

// Facts are what can be told of a module without running it. Whatever is not certain is left out, so that a module
// that is refused for them could not have run.
type Facts struct {
	// Imports are its static imports, in their order.
	Imports []Import `json:",omitempty"`
	// Default is its default export.
	Default Export
	// Undefined are the names that its evaluation always reads and that neither the module nor a sandbox defines.
	Undefined []string `json:",omitempty"`
}

// Import is one static import.
type Import struct {
	Specifier string
	// Missing are the names that the module does not export, of a module that sandboxes have.
	Missing []string `json:",omitempty"`
	// Unknown: sandboxes do not have the module.
	Unknown bool `json:",omitempty"`
}

// Export is a default export.
type Export struct {
	// Kind is what it is: one of the kinds below, or what a define function makes of its argument: "tool", "effect",
	// "hook", "endpoint", "handler", "agent", "prompt" or "model".
	Kind string `json:",omitempty"`
	// Incomplete: it is an object, or a define function is given one, that certainly has no function to call.
	Incomplete bool `json:",omitempty"`
}

// The kinds of a default export that no define function makes.
const (
	ExportUnknown  = ""
	ExportNone     = "none"
	ExportValue    = "value" // neither a function nor an object
	ExportFunction = "function"
	ExportObject   = "object"
)
