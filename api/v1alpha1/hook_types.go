package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HookName names a moment in the life of a thread at which code of the agent is called.
// +kubebuilder:validation:Enum=after_thread_created;after_subagent_created;after_system_message;filter_messages;prefilter_llm_history;before_create_message;after_create_message;before_update_message;after_update_message;before_store_tool_result;after_tool_call_success;after_tool_call_failure
type HookName string

// The hooks, with the arguments that follow state.
const (
	// HookAfterThreadCreated (): the thread was made.
	HookAfterThreadCreated HookName = "after_thread_created"
	// HookAfterSubagentCreated (subagent): a child was made; subagent is its entry in the registry.
	HookAfterSubagentCreated HookName = "after_subagent_created"
	// HookAfterSystemMessage (message): a run has assembled its system prompt.
	HookAfterSystemMessage HookName = "after_system_message"
	// HookFilterMessages (messages): returns the stored messages that the model is to read.
	HookFilterMessages HookName = "filter_messages"
	// HookPrefilterLLMHistory (history): returns the history that the model is to read, in the model's form.
	HookPrefilterLLMHistory HookName = "prefilter_llm_history"
	// HookBeforeCreateMessage (message): returns the message that is to be stored.
	HookBeforeCreateMessage HookName = "before_create_message"
	// HookAfterCreateMessage (message): a message was stored.
	HookAfterCreateMessage HookName = "after_create_message"
	// HookBeforeUpdateMessage (id, updates): returns the updates that are to be made.
	HookBeforeUpdateMessage HookName = "before_update_message"
	// HookAfterUpdateMessage (message): a message was changed.
	HookAfterUpdateMessage HookName = "after_update_message"
	// HookBeforeStoreToolResult (call, result): returns the result that is to be stored.
	HookBeforeStoreToolResult HookName = "before_store_tool_result"
	// HookAfterToolCallSuccess (call, result): a call succeeded, and its result is stored.
	HookAfterToolCallSuccess HookName = "after_tool_call_success"
	// HookAfterToolCallFailure (call, result): a call failed, and its result is stored.
	HookAfterToolCallFailure HookName = "after_tool_call_failure"
)

// Hook is code that is called at a moment in the life of a thread. If it fails, the thread's log says so as
// hook.failed, and the thread goes on with the data as it was.
type Hook struct {
	// Hook is the moment at which the code is called.
	Hook HookName `json:"hook"`

	// Code whose default export is the hook: defineHook('after_create_message', async (state, message) => …).
	Code CodeSource `json:"code"`

	// Timeout of one call, from 1ms to 10m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('10m')",message="give a duration from 1ms to 10m such as 10s"
	// +kubebuilder:default="10s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}
