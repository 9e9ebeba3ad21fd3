package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AgentType says who the two sides of a conversation are.
// +kubebuilder:validation:Enum=ai_human;dual_ai
type AgentType string

// The types of agent.
const (
	// AgentAIHuman talks with a person or a program, which is side b.
	AgentAIHuman AgentType = "ai_human"
	// AgentDualAI has two sides that models play, which talk with each other.
	AgentDualAI AgentType = "dual_ai"
)

// AgentSpec says what an agent is.
// +kubebuilder:validation:XValidation:rule="!has(self.exposeAsTool) || !self.exposeAsTool || (has(self.toolDescription) && size(self.toolDescription) > 0)",message="an agent with exposeAsTool: true needs toolDescription, the text by which a model decides to call it"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'dual_ai' || has(self.sideB)",message="an agent of type dual_ai needs sideB, the side that side a talks with"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'dual_ai') || !has(self.sideB)",message="sideB of an ai_human agent is the person: leave it out, or set type: dual_ai"
type AgentSpec struct {
	// Type of the agent: with ai_human, side a talks with a person or a program; with dual_ai, two sides that models
	// play talk with each other.
	// +kubebuilder:default=ai_human
	// +optional
	Type AgentType `json:"type,omitempty"`

	// Title for people.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Title string `json:"title,omitempty"`

	// SideA is the side that the model plays; of two, the one that begins a session.
	SideA AgentSide `json:"sideA"`

	// SideB is the other side of a dual_ai agent. Each side reads its own messages as the assistant's, and those of
	// the other side as a user's. It does not see the tool calls of the other side.
	// +optional
	SideB *AgentSide `json:"sideB,omitempty"`

	// MaxSessionTurns is how many turns, of both sides together, a session may have before it is over.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=50
	// +optional
	MaxSessionTurns int32 `json:"maxSessionTurns,omitempty"`

	// Subagents that this agent may start with the subagent_create tool.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Subagents []AgentSubagent `json:"subagents,omitempty"`

	// MaxInstances is how many subagents of this agent may live at once in the namespace, whatever their parents; no limit
	// when absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxInstances int32 `json:"maxInstances,omitempty"`

	// ExposeAsTool lets prompts of the namespace call this agent as a tool, and conversations be handed over to it by a
	// queued call.
	// +optional
	ExposeAsTool bool `json:"exposeAsTool,omitempty"`

	// ToolDescription is what a model reads to decide on calling this agent.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	ToolDescription string `json:"toolDescription,omitempty"`

	// HandoffPolicy says whether conversations of this agent may pass to another one: Allow or Never. The policy of
	// the Thread takes precedence.
	// +kubebuilder:default=Allow
	// +optional
	HandoffPolicy HandoffPolicy `json:"handoffPolicy,omitempty"`

	// ReadThreads says which other threads of the namespace models of this agent may read with the tool read_thread.
	// None means no thread, and Family the parents and children of its own thread. SameUser adds the threads with the
	// same userID, if its own thread has one. Namespace means all.
	// +kubebuilder:default=Family
	// +optional
	ReadThreads ReadThreads `json:"readThreads,omitempty"`

	// SandboxPoolRef names the pool that the code of this agent's threads runs in; the pool "default" when absent.
	// +optional
	SandboxPoolRef *LocalRef `json:"sandboxPoolRef,omitempty"`

	// ThreadIdleExpiry is the idleExpiry of this agent's threads that have none of their own, for
	// example 1h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || (duration(self) >= duration('1s') && duration(self) <= duration('87600h'))",message="give 0s for never, or a duration from 1s to 87600h such as 1h"
	// +optional
	ThreadIdleExpiry *metav1.Duration `json:"threadIdleExpiry,omitempty"`

	// Env are variables of this agent. Variables of the thread, its user and the instance take precedence.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(e, has(e.value) || has(e.valueFrom) || has(e.scoped) || has(e.required))",message="a variable needs value or valueFrom, unless it is scoped or required"
	// +optional
	Env []EnvVar `json:"env,omitempty"`

	// Memory of this agent makes what was said in its threads searchable.
	// +optional
	Memory *AgentMemory `json:"memory,omitempty"`

	// TitleModelRef names the Model that writes the titles of this agent's threads. Choose a small one. When it is absent,
	// the Model of sideA's prompt writes them, unless that Model is scripted. While the Model that it names cannot be used,
	// threads get no titles and the condition TitlesReady says why.
	// +optional
	TitleModelRef *LocalRef `json:"titleModelRef,omitempty"`

	// TitlePolicy: Auto gives a thread without a title one, once it has two messages of the user; Never does not.
	// +kubebuilder:default=Auto
	// +optional
	TitlePolicy TitlePolicy `json:"titlePolicy,omitempty"`

	// Hooks of this agent's threads, one for each moment. A hook of the prompt takes the place of the agent's of the
	// same name.
	// +listType=map
	// +listMapKey=hook
	// +kubebuilder:validation:MaxItems=12
	// +optional
	Hooks []Hook `json:"hooks,omitempty"`

	// RunPolicy says what happens to a user's message that arrives during a run and has no policy of its own. It holds for this
	// agent's threads without a runPolicy; enqueue when absent.
	// +optional
	RunPolicy RunPolicy `json:"runPolicy,omitempty"`

	// Limits bound each run. If the thread and its agent both have a limit, the lower one holds.
	// +optional
	Limits *RunLimits `json:"limits,omitempty"`
}

// ReadThreads says which other threads an agent may read.
// +kubebuilder:validation:Enum=None;Family;SameUser;Namespace
type ReadThreads string

// The rights to read other threads.
const (
	ReadThreadsNone      ReadThreads = "None"
	ReadThreadsFamily    ReadThreads = "Family"
	ReadThreadsSameUser  ReadThreads = "SameUser"
	ReadThreadsNamespace ReadThreads = "Namespace"
)

// AgentSide is one side of an agent: a prompt that a model plays, or a handler in code.
// +kubebuilder:validation:XValidation:rule="has(self.promptRef) != has(self.handler)",message="set exactly one of promptRef and handler: a side is a prompt or a handler"
// +kubebuilder:validation:XValidation:rule="!has(self.handler) || !(has(self.stopTool) || has(self.sessionStop) || has(self.sessionFail) || has(self.sessionStatus))",message="a handler's answer ends its turn: stopTool, sessionStop, sessionFail and sessionStatus are for sides with a promptRef"
// +kubebuilder:validation:XValidation:rule="!has(self.handler) || !has(self.stopOnResponse) || self.stopOnResponse",message="a handler's answer ends its turn: stopOnResponse: false is for sides with a promptRef"
// +kubebuilder:validation:XValidation:rule="!has(self.stopToolResponseProperty) || has(self.stopTool)",message="stopToolResponseProperty needs stopTool: name the tool whose arguments hold the property"
type AgentSide struct {
	// PromptRef names the Prompt of this side, which a model plays.
	// +optional
	PromptRef LocalRef `json:"promptRef,omitzero"`

	// Handler is code that answers instead of a prompt and its model.
	// +optional
	Handler *SideHandler `json:"handler,omitempty"`

	// Label of this side, for people.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Label string `json:"label,omitempty"`

	// StopOnResponse ends this side's turn when its model answers without calling a tool.
	// +kubebuilder:default=true
	// +optional
	StopOnResponse *bool `json:"stopOnResponse,omitempty"`

	// StopTool names a tool whose call ends this side's turn.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	StopTool string `json:"stopTool,omitempty"`

	// StopToolResponseProperty names the argument of StopTool that becomes the answer of the turn.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	StopToolResponseProperty string `json:"stopToolResponseProperty,omitempty"`

	// MaxSteps is how many model calls one turn of this side may make, including those of a handler. A turn that needs
	// more fails the run.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=50
	// +optional
	MaxSteps int32 `json:"maxSteps,omitempty"`

	// SessionStop is the tool by which the model ends the session, of both sides, with a result for the parent. The
	// thread stays: a later message begins a new session.
	// +optional
	SessionStop *SessionTool `json:"sessionStop,omitempty"`

	// SessionFail is the tool by which the model ends the session, of both sides, with a failure for the parent.
	// +optional
	SessionFail *SessionTool `json:"sessionFail,omitempty"`

	// SessionStatus is the tool by which the model tells its status to the parent's registry.
	// +optional
	SessionStatus *SessionTool `json:"sessionStatus,omitempty"`
}

// SessionTool is a tool with a meaning for the session: Skein supplies it to the model under this name.
type SessionTool struct {
	// Name of the tool, as the model calls it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-zA-Z0-9_-]*$')`,message="write a name that models can call: letters, digits, _ and -, such as finish_order"
	Name string `json:"name"`

	// MessageProperty names the argument that holds the text.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-zA-Z0-9_-]*$')`,message="write the name of an argument: letters, digits, _ and -, such as message"
	// +kubebuilder:default=message
	// +optional
	MessageProperty string `json:"messageProperty,omitempty"`

	// AttachmentsProperty names the argument that holds the paths of files to hand over.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-zA-Z0-9_-]*$')`,message="write the name of an argument: letters, digits, _ and -, such as attachments"
	// +kubebuilder:default=attachments
	// +optional
	AttachmentsProperty string `json:"attachmentsProperty,omitempty"`
}

// ParentCommunication says how a child reports to its parent.
// +kubebuilder:validation:Enum=implicit;explicit
type ParentCommunication string

// Implicit: the end of the child's session queues its result on the parent. Explicit: only notifyParent does.
const (
	CommunicationImplicit ParentCommunication = "implicit"
	CommunicationExplicit ParentCommunication = "explicit"
)

// ChildRetention says what happens to the conversation of a finished child.
// +kubebuilder:validation:Enum=Keep;Purge
type ChildRetention string

// The retentions.
const (
	// ChildKeep keeps the conversation without its objects. A Thread with its id in spec.threadID adopts it.
	ChildKeep ChildRetention = "Keep"
	// ChildPurge removes the conversation with its objects.
	ChildPurge ChildRetention = "Purge"
)

// AgentSubagent is an agent that another one may start.
// +kubebuilder:validation:XValidation:rule="(has(self.immediate) && self.immediate) == has(self.message)",message="message is the task of an immediate subagent: give immediate: true and message together, or neither"
// +kubebuilder:validation:XValidation:rule="!has(self.arguments) || (has(self.immediate) && self.immediate)",message="arguments are those of an immediate subagent: the model gives the arguments of the others"
type AgentSubagent struct {
	// Name by which the model asks for it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-zA-Z0-9_-]*$')`,message="write a name that the model can use: letters, digits, _ and -, such as auditor"
	Name string `json:"name"`

	// AgentRef names the Agent that the child runs.
	AgentRef LocalRef `json:"agentRef"`

	// Description that the model reads.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Description string `json:"description,omitempty"`

	// Blocking: the parent's tool call waits for the child's result.
	// +optional
	Blocking bool `json:"blocking,omitempty"`

	// Resumable: the child lives on after its result and can be messaged again.
	// +optional
	Resumable bool `json:"resumable,omitempty"`

	// ParentCommunication of the child.
	// +kubebuilder:default=implicit
	// +optional
	ParentCommunication ParentCommunication `json:"parentCommunication,omitempty"`

	// MaxInstances is how many of it may live at once in one thread.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:default=10
	// +optional
	MaxInstances int32 `json:"maxInstances,omitempty"`

	// Immediate starts such a subagent in every new thread of this agent, before the first model step, with message as
	// its task. A fork that has inherited the calls which started them starts none.
	// +optional
	Immediate bool `json:"immediate,omitempty"`

	// Message that an immediate subagent begins with.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Message string `json:"message,omitempty"`

	// Arguments of an immediate subagent.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Arguments *runtime.RawExtension `json:"arguments,omitempty"`

	// Optional names a variable. Threads in which its value is not true, yes, on or 1 have no such subagent: it is neither
	// started nor offered to the model.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z_][A-Za-z0-9_]*$')`,message="write the name of a variable: letters, digits and _, such as WITH_AUDITOR"
	// +optional
	Optional string `json:"optional,omitempty"`

	// TTLAfterFinished is how long after its final end a child is removed. When it is absent, the child stays as long as
	// its parent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('87600h')",message="give a duration from 0s to 87600h such as 24h, or leave it out to keep finished children as long as their parent"
	// +optional
	TTLAfterFinished *metav1.Duration `json:"ttlAfterFinished,omitempty"`

	// Retain says what happens to the conversation of a child that ttlAfterFinished removes: Purge, the default, or Keep.
	// +optional
	Retain ChildRetention `json:"retain,omitempty"`
}

// DefinitionStatus is the status that all definitions share.
type DefinitionStatus struct {
	// ObservedGeneration is the generation that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions; Ready is always present.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Agent is a definition: which prompt, model, tools and rules a conversation runs with.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ag,categories=skein
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Prompt",type=string,JSONPath=`.spec.sideA.promptRef.name`
// +kubebuilder:printcolumn:name="Prompt B",type=string,JSONPath=`.spec.sideB.promptRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Agent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec AgentSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DefinitionStatus `json:"status,omitempty"`
}

// AgentList is a list of Agents.
// +kubebuilder:object:root=true
type AgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Agent `json:"items"`
}
