package v1alpha1

// BuiltinTool names a built-in tool, or a family of such tools.
// +kubebuilder:validation:Enum=files;code;effects;subagents;kv;wait;memory;threads;handoff
type BuiltinTool string

// The built-in families. docs/tools.md lists the tools of each.
const (
	// BuiltinFiles reads, writes and searches the files of the thread.
	BuiltinFiles BuiltinTool = "files"
	// BuiltinCode runs code that the model writes.
	BuiltinCode BuiltinTool = "code"
	// BuiltinEffects schedules effects of the thread.
	BuiltinEffects BuiltinTool = "effects"
	// BuiltinSubagents starts subagents and sends them messages.
	BuiltinSubagents BuiltinTool = "subagents"
	// BuiltinKV keeps values of the thread.
	BuiltinKV BuiltinTool = "kv"
	// BuiltinWait parks the run for a time.
	BuiltinWait BuiltinTool = "wait"
	// BuiltinMemory searches what was said before. The agent needs spec.memory.
	BuiltinMemory BuiltinTool = "memory"
	// BuiltinThreads reads other threads. The agent's readThreads says which.
	BuiltinThreads BuiltinTool = "threads"
	// BuiltinHandoff starts a new thread with the context of this one.
	BuiltinHandoff BuiltinTool = "handoff"
)
