package v1alpha1

import "encoding/json"

// Event is one entry of a thread's log. Over server-sent events the id is seq, the
// event name is type and the data is this object; over WebSocket each text message is this object.
type Event struct {
	// Seq is the sequence number, growing within the thread. Resume with after=<seq>.
	Seq int64 `json:"seq"`
	// Type: one of the types below, or "event:<name>" for one that code emitted.
	Type string `json:"type"`
	// RunID is the run that it belongs to.
	RunID string `json:"runId,omitempty"`
	// MessageID is the message that it speaks of.
	MessageID string `json:"messageId,omitempty"`
	// Data depends on the type.
	Data json.RawMessage `json:"data,omitempty"`
	// CreatedAt in microseconds.
	CreatedAt int64 `json:"createdAt"`
}

// Types of event. What an event says can be read in full where it points: the message, the run, the file.
const (
	EventRunStarted = "run.started"
	EventRunWaiting = "run.waiting"
	EventRunEnded   = "run.ended"
	// EventRunRolledBack has data {"messages", "calls", "children"}: how many messages of a run were taken back, and what
	// the run has done that stays done.
	EventRunRolledBack  = "run.rolledback"
	EventMessageQueued  = "message.queued"
	EventMessageCreated = "message.created"
	EventMessageUpdated = "message.updated"
	EventMessageDeleted = "message.deleted"
	// EventDelta has data {"text": "…"}: a piece of an answer under way.
	EventDelta       = "message.delta"
	EventToolStarted = "tool.started"
	EventToolEnded   = "tool.ended"
	// EventContextTrimmed has data {"leftOut", "shortened", "kept", "tokens", "contextWindow", "model"}: the model was asked
	// without so many of the oldest messages, and with the beginning and the end alone of so many results, to keep within
	// its window. contextWindow is absent where nobody has said it, model names the Model where it was a fallback.
	EventContextTrimmed = "context.trimmed"
	// EventToolProgress has data {"name", "toolCallId", "progress", "total", "message"}: how far a call is, as its tool
	// tells it.
	EventToolProgress = "tool.progress"
	// EventApprovalRequested has data {"name", "toolCallId", "expiresAt"}: a call waits for approval. EventApprovalDecided
	// has that call's "name" and "toolCallId" and the fields of Decision.
	EventApprovalRequested = "approval.requested"
	EventApprovalDecided   = "approval.decided"
	// EventTurnEnded has data {"side": "a", "turn": 1, "next": "b"}: the turn of a side is over, the how manieth of the
	// session it was, and whose the next one is.
	EventTurnEnded = "turn.ended"
	// EventHookFailed has data {"hook", "owner", "error", "messageId", "toolCallId"}: code of a hook did not do its part,
	// and the thread went on with the data as it was.
	EventHookFailed = "hook.failed"
	// EventCodeLog has data LogLine: what code of a tool, a hook, an effect, an endpoint or a handler wrote to the console,
	// how work after its answer failed, or how many lines were dropped.
	EventCodeLog = "code.log"
	// EventHandlerLog: a line that the handler of an agent's side logged: level, message, data.
	EventHandlerLog = "handler.log"
	// EventTaskFailed has data {"task", "error"}: a task that follows a run, "title" or "embeddings", did not do its part.
	EventTaskFailed = "task.failed"
	EventTerminated = "thread.terminated"
	// EventDestroyed comes when the conversation was cleared; Data is {"reason": "explicit" or "expired", "messages": n}.
	EventDestroyed = "thread.destroyed"
	// EventHandoff has data {"from", "to", "by", "toolCallId"}: the thread passed to another agent, by the spec of the
	// Thread object or by a tool.
	EventHandoff = "thread.handoff"
	// EventContinued comes when a user let go on what waited since a stop.
	EventContinued = "thread.continued"
	// EventRetained comes when the Thread object was deleted and the data is kept, EventAdopted when another
	// Thread object has taken it over.
	EventRetained    = "thread.retained"
	EventAdopted     = "thread.adopted"
	EventFileWritten = "file.written"
	EventFileDeleted = "file.deleted"
	// EventStateSkipped has data StateSkipped: state of a run that was not saved.
	EventStateSkipped = "state.skipped"
	// Entries that came by an import; data is the line of the export.
	EventImportedToolUse       = "imported.tool_use"
	EventImportedAssistantText = "imported.assistant_text"
	EventImportedResult        = "imported.result"
	// EventCustomPrefix comes before the name of an event that code emitted.
	EventCustomPrefix = "event:"
)

// LogLine is the data of EventCodeLog.
type LogLine struct {
	// Level: debug, info, warn or error.
	Level string `json:"level"`
	// Message as text, at most 8 KiB.
	Message string `json:"message"`
	// Time in microseconds.
	Time int64 `json:"time,omitempty"`
	// Source is whose code it was: tool/NAME, hook/NAME, effect/NAME, endpoint/NAME or handler/SIDE. It is absent where
	// several were at work at once.
	Source string `json:"source,omitempty"`
	// Call is the id of the tool call that it belongs to.
	Call string `json:"call,omitempty"`
	// Dropped is how many lines this one stands for that were not kept.
	Dropped int64 `json:"dropped,omitempty"`
}

// StreamClosed is the data of the last server-sent event of a stream, named StreamClosedEvent, when it is the
// server that ends it. A WebSocket says the same in its close frame. It has no id and is not in the log.
type StreamClosed struct {
	// Reason: ServerStopping, ThreadDeleted, TooSlow, StoreUnavailable or EndOfLog.
	Reason string `json:"reason"`
	// Message for people.
	Message string `json:"message"`
	// Resume is the sequence number to go on after.
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
	ClosedEndOfLog         = "EndOfLog"
)

// AfterLatest is the value of the query parameter after that skips what has happened already.
const AfterLatest = "latest"

// EventsSubprotocol is the WebSocket subprotocol of events. Clients that pass their token as a subprotocol
// (base64url.bearer.authorization.k8s.io.<token>) offer this one too.
const EventsSubprotocol = "v1alpha1.events.runtime.skein.dev"
