package v1alpha1

import "encoding/json"

// Event is one entry of a thread's log. As a server-sent event, its id is seq, its name is type and its data is this
// object. Over a WebSocket, each text message is this object.
type Event struct {
	// Seq is the sequence number, which grows within the thread. Resume with after=<seq>.
	Seq int64 `json:"seq"`
	// Type is one of the types below, or "event:<name>" for an event that code emitted.
	Type string `json:"type"`
	// RunID is the run that it belongs to.
	RunID string `json:"runId,omitempty"`
	// MessageID is the message that it is about.
	MessageID string `json:"messageId,omitempty"`
	// Data depends on the type.
	Data json.RawMessage `json:"data,omitempty"`
	// CreatedAt is in microseconds.
	CreatedAt int64 `json:"createdAt"`
}

// Types of event. An event is short; the message, the run or the file that it names has the full content.
const (
	EventRunStarted = "run.started"
	EventRunWaiting = "run.waiting"
	EventRunEnded   = "run.ended"
	// EventRunRolledBack has data {"messages", "calls", "children"}: how many messages of a run were removed, and
	// which actions of the run cannot be undone.
	EventRunRolledBack  = "run.rolledback"
	EventMessageQueued  = "message.queued"
	EventMessageCreated = "message.created"
	EventMessageUpdated = "message.updated"
	EventMessageDeleted = "message.deleted"
	// EventDelta has data {"text": "…"}: a piece of an answer that is being written.
	EventDelta       = "message.delta"
	EventToolStarted = "tool.started"
	EventToolEnded   = "tool.ended"
	// EventContextTrimmed has data {"leftOut", "shortened", "kept", "tokens", "contextWindow", "model"}: the request
	// did not fit the model's window. leftOut is how many of the oldest messages it omitted, and shortened is how many
	// results it cut to their beginning and end. contextWindow is absent if it is not configured. model names the Model
	// if it was a fallback.
	EventContextTrimmed = "context.trimmed"
	// EventContextCompacted has Compacted as data: a model has summed up older messages. EventCompactionFailed has
	// CompactionFailure: they could not be summed up, and the conversation goes on without.
	EventContextCompacted = "context.compacted"
	EventCompactionFailed = "context.compaction_failed"
	// EventToolProgress has data {"name", "toolCallId", "progress", "total", "message"}: the progress of a call, as
	// its tool reports it.
	EventToolProgress = "tool.progress"
	// EventApprovalRequested has data {"name", "toolCallId", "expiresAt"}: a call waits for approval.
	// EventApprovalDecided has the "name" and "toolCallId" of that call and the fields of Decision.
	EventApprovalRequested = "approval.requested"
	EventApprovalDecided   = "approval.decided"
	// EventTurnEnded has data {"side": "a", "turn": 1, "next": "b"}: the side whose turn ended, the 1-based number of
	// the turn in the session, and the side whose turn is next.
	EventTurnEnded = "turn.ended"
	// EventHookFailed has data {"hook", "owner", "error", "messageId", "toolCallId"}: the code of a hook failed, and
	// the thread continued with the unchanged data.
	EventHookFailed = "hook.failed"
	// EventCodeLog has data LogLine: what code of a tool, a hook, an effect, an endpoint or a handler wrote to the
	// console, how work after its answer failed, or how many lines were dropped.
	EventCodeLog = "code.log"
	// EventHandlerLog has a line that the handler of an agent's side logged: level, message, data.
	EventHandlerLog = "handler.log"
	// EventTaskFailed has data {"task", "error"}: a task that follows a run, "title" or "embeddings", failed.
	EventTaskFailed = "task.failed"
	EventTerminated = "thread.terminated"
	// EventDestroyed means that the conversation was cleared. Its data is {"reason": "explicit" or "expired",
	// "messages": n}.
	EventDestroyed = "thread.destroyed"
	// EventHandoff has data {"from", "to", "by", "toolCallId"}: the thread passed to another agent, through the spec
	// of the Thread object or a tool.
	EventHandoff = "thread.handoff"
	// EventContinued means that a user continued the messages that had waited since a stop.
	EventContinued = "thread.continued"
	// EventRetained means that the Thread object was deleted and the data is kept. EventAdopted means that another
	// Thread object has adopted the data.
	EventRetained    = "thread.retained"
	EventAdopted     = "thread.adopted"
	EventFileWritten = "file.written"
	EventFileDeleted = "file.deleted"
	// EventStateSkipped has data StateSkipped: state of a run that was not saved.
	EventStateSkipped = "state.skipped"
	// Entries that an import created. Their data is the line of the export.
	EventImportedToolUse       = "imported.tool_use"
	EventImportedAssistantText = "imported.assistant_text"
	EventImportedResult        = "imported.result"
	// EventCustomPrefix is the prefix of the type of an event that code emitted.
	EventCustomPrefix = "event:"
)

// LogLine is the data of EventCodeLog.
type LogLine struct {
	// Level is debug, info, warn or error.
	Level string `json:"level"`
	// Message is the text, at most 8 KiB.
	Message string `json:"message"`
	// Time is in microseconds.
	Time int64 `json:"time,omitempty"`
	// Source says which code wrote the line: tool/NAME, hook/NAME, effect/NAME, endpoint/NAME or handler/SIDE. It is
	// absent where several ran at the same time.
	Source string `json:"source,omitempty"`
	// Call is the id of the tool call that it belongs to.
	Call string `json:"call,omitempty"`
	// Firing is the firing whose effect wrote the line: the name of its ScheduledEffect, a slash and the due time in UTC, such as
	// daily/2027-01-31T09:00:00Z.
	Firing string `json:"firing,omitempty"`
	// Dropped is how many dropped lines this one stands for.
	Dropped int64 `json:"dropped,omitempty"`
}

// StreamClosed is the data of the last server-sent event of a stream, named StreamClosedEvent, when the server ends
// the stream. The close frame of a WebSocket has the same content. The event has no id and is not in the log.
type StreamClosed struct {
	// Reason is ServerStopping, ThreadDeleted, TooSlow, NoMemory, StoreUnavailable or EndOfLog.
	Reason string `json:"reason"`
	// Message is for people.
	Message string `json:"message"`
	// Resume is the sequence number to continue after.
	Resume int64 `json:"resume"`
}

// StreamClosedEvent is the name of the server-sent event that carries StreamClosed.
const StreamClosedEvent = "stream.closed"

// Reasons of StreamClosed.
const (
	ClosedServerStopping   = "ServerStopping"
	ClosedThreadDeleted    = "ThreadDeleted"
	ClosedTooSlow          = "TooSlow"
	ClosedStoreUnavailable = "StoreUnavailable"
	ClosedNoMemory         = "NoMemory" // the namespace takes as much of the manager's memory as it may
	ClosedEndOfLog         = "EndOfLog"
)

// AfterLatest is the value of the query parameter after that skips existing events.
const AfterLatest = "latest"

// EventsSubprotocol is the WebSocket subprotocol of events. A client that sends its token as a subprotocol
// (base64url.bearer.authorization.k8s.io.<token>) must offer this one too.
const EventsSubprotocol = "v1alpha1.events.runtime.skein.dev"
