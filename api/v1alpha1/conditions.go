package v1alpha1

// Condition types. Every kind has Ready; the rest belong to the kind that their comment names.
const (
	// ConditionReady says that the object is accepted and can do its work.
	ConditionReady = "Ready"
	// ConditionStalled is True while the object is not Ready and only an edit can change that; it is absent otherwise. Tools
	// that follow the kstatus convention, such as Flux and kpt, read it as a failure.
	ConditionStalled = "Stalled"
	// ConditionExecuting says that a run of the Thread is under way.
	ConditionExecuting = "Executing"
	// ConditionTerminated says that the Thread, or the child of a Subagent, has ended for good.
	ConditionTerminated = "Terminated"
	// ConditionStatePersisted is False while state that code set could not be saved, and True once a later save
	// succeeded. Other Threads have no such condition.
	ConditionStatePersisted = "StatePersisted"
	// ConditionPackable says that a Tool runs wherever its code is taken: it is False where the code names
	// state._notPackableRuntimeContext, which other platforms do not have.
	ConditionPackable = "Packable"
	// ConditionTitlesReady is False on an Agent whose titleModelRef cannot be used: its threads run and get no titles.
	// Agents without a titleModelRef have no such condition.
	ConditionTitlesReady = "TitlesReady"
	// ConditionFull says that one of the bounds of a ThreadQuota is reached.
	ConditionFull = "Full"
	// ConditionCompactionReady is False on a Prompt whose spec.compaction cannot work: its model has no declared window, or
	// compaction.modelRef cannot be used. Threads run, and older turns are left out at the end of the window. The condition
	// is absent without spec.compaction.
	ConditionCompactionReady = "CompactionReady"
	// ConditionFired says that the due time of a ScheduledEffect has been recorded as fired.
	ConditionFired = "Fired"
	// ConditionComplete says that the handler of a ScheduledEffect has ended.
	ConditionComplete = "Complete"
)

// Reasons of Ready that every kind may show.
const (
	// ReasonReady: everything that the object needs is there.
	ReasonReady = "Ready"
	// ReasonReferenceNotFound: an object that this one names does not exist; heals by itself when it appears.
	ReasonReferenceNotFound = "ReferenceNotFound"
	// ReasonReferenceNotReady: an object that this one names is not Ready; heals by itself.
	ReasonReferenceNotReady = "ReferenceNotReady"
	// ReasonSecretForbidden: the manager may not read or write a Secret that this object needs; the message says what to bind, and it heals by itself.
	ReasonSecretForbidden = "SecretForbidden"
	// ReasonNotExposed: an Agent or a Prompt that this Prompt lists as a tool does not offer itself as one; spec.exposeAsTool is to be set there.
	ReasonNotExposed = "NotExposed"
	// ReasonInvalidSpec: the spec has a mistake that no schema could catch; the message says what to change.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonProgressing: work is under way.
	ReasonProgressing = "Progressing"
	// ReasonInternalError: Skein itself failed, and tries again. A run that failed for this reason is not tried again: the manager's log has details.
	ReasonInternalError = "InternalError"
)

// Reasons of a Thread that names data to adopt; both heal by themselves.
const (
	// ReasonThreadNotRetained: there is no retained data of spec.threadID in this namespace.
	ReasonThreadNotRetained = "ThreadNotRetained"
	// ReasonThreadInUse: the data of spec.threadID belongs to another Thread of this namespace.
	ReasonThreadInUse = "ThreadInUse"
)

// ReasonHandoffRefused says that spec.agentRef of a Thread was changed, and the handoffPolicy of the agent that has it forbids
// that; the conversation goes on with that agent.
const ReasonHandoffRefused = "HandoffRefused"

// ReasonForkPointLost says that a fork that was requested by the runtime API can never be made: its origin was deleted, or lost the
// message, before the fork was stored.
const ReasonForkPointLost = "ForkPointLost"

// ReasonInvalidArguments says that the arguments of a Thread do not fit the requiredSchema of its agent's prompt.
const ReasonInvalidArguments = "InvalidArguments"

// Reasons of definitions.
const (
	// ReasonCompileFailed: the code does not compile; the message has line and column.
	ReasonCompileFailed = "CompileFailed"
	// ReasonInvalidCode: the code compiles but cannot run: an import that sandboxes do not have, no default export, or a
	// definition of another kind. The message says what to change.
	ReasonInvalidCode = "InvalidCode"
	// ReasonAddressForbidden: the URL of a Tool, a Model, a Webhook or a ThreadGateway's id provider leads to an address that no declaration opens, such as a loopback address,
	// a cloud's metadata service or the API server.
	ReasonAddressForbidden = "AddressForbidden"
	// ReasonAddressNotAllowed: the URL of a Tool, a Model, a Webhook or a ThreadGateway's id provider leads to a host that the
	// installation does not let this namespace reach; heals by itself when the Namespace, or the manager's flag, allows it.
	ReasonAddressNotAllowed = "AddressNotAllowed"
	// ReasonInvalidSchema: spec.parameters of a Tool or an Effect, or a schema of a Prompt, is not a usable JSON Schema.
	ReasonInvalidSchema = "InvalidSchema"
	// ReasonIncludeCycle: Prompts include one another in a circle; the message names them in their order.
	ReasonIncludeCycle = "IncludeCycle"
	// ReasonInvalidPlaceholder: the text of a Prompt, or of what it includes, has braces that are no placeholder.
	ReasonInvalidPlaceholder = "InvalidPlaceholder"
	// ReasonInvalidScript: the script of a scripted Model cannot be played.
	ReasonInvalidScript = "InvalidScript"
	// ReasonPortable: the code of a Tool uses nothing that only this platform has.
	ReasonPortable = "Portable"
	// ReasonReadsRuntimeContext: the code of a Tool names state._notPackableRuntimeContext.
	ReasonReadsRuntimeContext = "ReadsRuntimeContext"
	// ReasonChildRefused: the child cannot be created, so that it has failed; the message says why. Its parent was told.
	ReasonChildRefused = "ChildRefused"
	// ReasonChildNotDeleted: an Event of a Thread that is being deleted and waits for a child that cannot be deleted.
	ReasonChildNotDeleted = "ChildNotDeleted"
	// ReasonPathTaken: an older ThreadEndpoint has the same path and method, and answers in place of this one.
	ReasonPathTaken = "PathTaken"
	// ReasonListenerOff: the manager serves no ThreadGateways and WebhookReceivers, because it runs without --gateway-bind-address.
	ReasonListenerOff = "ListenerOff"
)

// Reasons of a Thread's Executing condition.
const (
	// ReasonRunning: a run holds the thread.
	ReasonRunning = "Running"
	// ReasonWaitingForChild: the run waits for a blocking child.
	ReasonWaitingForChild = "WaitingForChild"
	// ReasonWaitingForApproval: the run waits until tool calls are approved or refused; the message names them.
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonWaitingForTime: the run waits until a time, which the message says.
	ReasonWaitingForTime = "WaitingForTime"
	// ReasonEnvMissing: the run waits for variables that its agent requires; the message names them.
	ReasonEnvMissing = "EnvMissing"
	// ReasonWaitingForQuota: the namespace has used up a quota; the thread goes on when there is room.
	ReasonWaitingForQuota = "WaitingForQuota"
	// ReasonIdle: at rest.
	ReasonIdle = "Idle"
)

// Reasons of Terminated.
const (
	// ReasonTerminatedByRequest: terminate was called on this thread, not on an ancestor.
	ReasonTerminatedByRequest = "TerminatedByRequest"
	// ReasonParentTerminated: an ancestor was terminated.
	ReasonParentTerminated = "ParentTerminated"
	// ReasonFiringTimeout: a ScheduledEffect made this thread, and the first run did not end within spec.timeout.
	ReasonFiringTimeout = "FiringTimeout"
	// ReasonSessionEnded: a child that is not resumable gave its result.
	ReasonSessionEnded = "SessionEnded"
	// ReasonPurged: the data of the thread is being removed, so that it ends without its hooks.
	ReasonPurged = "Purged"
	// ReasonActive: not terminated.
	ReasonActive = "Active"
)

// Reasons of a ScheduledEffect.
const (
	// ReasonPending: the due time lies ahead.
	ReasonPending = "Pending"
	// ReasonFired: the firing is recorded.
	ReasonFired = "Fired"
	// ReasonSucceeded: the handler returned.
	ReasonSucceeded = "Succeeded"
	// ReasonFailed: the handler failed for good; the message says why.
	ReasonFailed = "Failed"
	// ReasonCanceled: the thread ended before the effect was due.
	ReasonCanceled = "Canceled"
	// ReasonUnknown: the effect fired, and the record of how that ended was deleted with its Thread; or there is no record of whether it fired.
	ReasonUnknown = "Unknown"
	// ReasonPaused: too many firings of a schedule failed in a row.
	ReasonPaused = "Paused"
	// ReasonWaiting: a firing waits for a sandbox, a definition, or the Thread that it created.
	ReasonWaiting = "Waiting"
)

// Reasons of a SandboxPool.
const (
	// ReasonWarm: as many warm sandboxes as asked for are ready.
	ReasonWarm = "Warm"
	// ReasonScaling: sandboxes are being started.
	ReasonScaling = "Scaling"
	// ReasonPodsFailing: sandbox pods end, or do not come up; the message has the last cause.
	ReasonPodsFailing = "PodsFailing"
	// ReasonImageUnavailable: the nodes cannot get the sandbox's image.
	ReasonImageUnavailable = "ImageUnavailable"
	// ReasonUnschedulable: no node takes the pods.
	ReasonUnschedulable = "Unschedulable"
	// ReasonQuotaExceeded: a ResourceQuota of the namespace leaves no room for the pods, or a ThreadQuota for the Thread. Of a run: the
	// namespace has used up its tokens or its cost of the day.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonQuotaHasRoom: no bound of the ThreadQuota is reached.
	ReasonQuotaHasRoom = "QuotaHasRoom"
	// ReasonPodsRefused: the API server refuses the pods: an admission policy, or a value of the pool's spec.
	ReasonPodsRefused = "PodsRefused"
	// ReasonProcessMode: the manager runs sandboxes as local processes, so the pool makes no pods.
	ReasonProcessMode = "ProcessMode"
)

// Reasons of runs that did not succeed, in status.lastRun.reason. InternalError and QuotaExceeded are also among them.
const (
	// ReasonModelUnavailable: the endpoint refuses connections or answers 429 or 5xx.
	ReasonModelUnavailable = "ModelUnavailable"
	// ReasonModelTimeout: the answer took longer than spec.timeout.
	ReasonModelTimeout = "ModelTimeout"
	// ReasonModelBadAnswer: the provider's answer does not follow its protocol.
	ReasonModelBadAnswer = "ModelBadAnswer"
	// ReasonModelRefused: the provider refused the request: 4xx.
	ReasonModelRefused = "ModelRefused"
	// ReasonModelFailed: the provider, or a script, says that it failed.
	ReasonModelFailed = "ModelFailed"
	// ReasonModelInvalid: the Model cannot be used as it is declared.
	ReasonModelInvalid = "ModelInvalid"
	// ReasonMaxStepsReached: the turn or the run made as many model calls as maxSteps allows, and has not ended.
	ReasonMaxStepsReached = "MaxStepsReached"
	// ReasonMaxSessionTurnsReached: the session had as many turns as maxSessionTurns allows, which is not a failure.
	ReasonMaxSessionTurnsReached = "MaxSessionTurnsReached"
	// ReasonMaxTokensReached: the run used as many tokens as its limits allow.
	ReasonMaxTokensReached = "MaxTokensReached"
	// ReasonMaxCostReached: the run cost as much as its limits allow.
	ReasonMaxCostReached = "MaxCostReached"
	// ReasonMaxDurationReached: the run worked for as long as its limits allow.
	ReasonMaxDurationReached = "MaxDurationReached"
	// ReasonInvalidLimits: the limits of the run cannot be read.
	ReasonInvalidLimits = "InvalidLimits"
	// ReasonEnvUnreadable: a variable of the thread cannot be opened.
	ReasonEnvUnreadable = "EnvUnreadable"
	// ReasonContextTooLarge: not even the prompt and the newest turn fit the model's context window, or the provider says that they do not.
	ReasonContextTooLarge = "ContextTooLarge"
	// ReasonInvalidAnswer: the answer does not fit the prompt's responseSchema, even after one retry.
	ReasonInvalidAnswer = "InvalidAnswer"
	// ReasonInvalidTools: the prompt's tools cannot be offered.
	ReasonInvalidTools = "InvalidTools"
	// ReasonInvalidInput: the message is not an input that the side's handler accepts.
	ReasonInvalidInput = "InvalidInput"
	// ReasonInvalidOutput: what the side's handler returned does not fit its output schema.
	ReasonInvalidOutput = "InvalidOutput"
	// ReasonHandlerFailed: the side's handler threw; the thread's log has the stack.
	ReasonHandlerFailed = "HandlerFailed"
	// ReasonHandlerTimeout: the side's handler took longer than its timeout.
	ReasonHandlerTimeout = "HandlerTimeout"
	// ReasonSessionFailed: the model called the agent's sessionFail tool.
	ReasonSessionFailed = "SessionFailed"
	// ReasonStoppedByUser: a user stopped the thread.
	ReasonStoppedByUser = "StoppedByUser"
	// ReasonTerminated: the thread was terminated.
	ReasonTerminated = "Terminated"
	// ReasonCancelled: a user cancelled this run.
	ReasonCancelled = "Cancelled"
	// ReasonInterrupted: a message took the place of the run.
	ReasonInterrupted = "Interrupted"
	// ReasonRolledBack: a message took the place of the run, and what the run had appended was removed.
	ReasonRolledBack = "RolledBack"
	// ReasonDestroyed: the conversation of the thread was destroyed.
	ReasonDestroyed = "Destroyed"
	// ReasonThreadDeleted: the Thread was deleted, and its data is kept.
	ReasonThreadDeleted = "ThreadDeleted"
)

// Reasons that only Events have. Other Events have the reason of a condition or of a run.
const (
	// ReasonAdopted: the Thread took the retained data of spec.threadID.
	ReasonAdopted = "Adopted"
	// ReasonServerUnreachable: the MCP server of a Tool does not answer.
	ReasonServerUnreachable = "ServerUnreachable"
	// ReasonServerReachable: the MCP server of a Tool answers again.
	ReasonServerReachable = "ServerReachable"
	// ReasonRunFailed: the last run failed for a reason that is not recorded.
	ReasonRunFailed = "RunFailed"
	// ReasonHandedOver: the conversation passed from one Agent to another.
	ReasonHandedOver = "HandedOver"
	// ReasonCallApproved: a person approved a tool call; the message names both.
	ReasonCallApproved = "CallApproved"
	// ReasonCallRefused: a person refused a tool call; the message names both.
	ReasonCallRefused = "CallRefused"
	// ReasonInvalidRequest: an annotation that asks a ScheduledEffect to fire has a mistake; the message says what to write.
	ReasonInvalidRequest = "InvalidRequest"
)

// Reasons why a due time of a ScheduledEffect did not fire, in Events, status.lastSkip and the history. Paused is also among them. If an
// effect of one time did not fire, its condition Complete has the reason, too.
const (
	// ReasonMissed: it was too late: startingDeadlineSeconds or catchUp says so, or the times were changed before it could fire.
	ReasonMissed = "Missed"
	// ReasonSuspended: spec.suspend was true.
	ReasonSuspended = "Suspended"
	// ReasonForbidden: an earlier firing was under way, and the concurrencyPolicy allows no other.
	ReasonForbidden = "Forbidden"
	// ReasonLimitReached: the dailyLimit is used up, or 10,000 firings were under way.
	ReasonLimitReached = "LimitReached"
	// ReasonTooManyThreads: the selector matched more Threads than maxThreads.
	ReasonTooManyThreads = "TooManyThreads"
	// ReasonNoThreadMatches: the selector matched no living Thread.
	ReasonNoThreadMatches = "NoThreadMatches"
)

// Reasons of StatePersisted.
const (
	// ReasonStateTooLarge: thread or session state had more than 1,048,576 bytes of JSON; the message says which.
	ReasonStateTooLarge = "StateTooLarge"
	// ReasonStateSaved: all of the state is saved again.
	ReasonStateSaved = "StateSaved"
)

// MaxRequestKey bounds the key of a request to fire a ScheduledEffect now, in bytes.
const MaxRequestKey = 128
