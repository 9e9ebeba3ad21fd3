package v1alpha1

// ThreadsResource is the resource whose subresources make up the API.
const ThreadsResource = "threads"

// View is a resource of the runtime API beside threads that covers many threads.
type View string

// The views.
const (
	// ViewLookups finds a thread by any form of its id across namespaces: GET lookups/{id}. It has no namespace.
	ViewLookups View = "lookups"
	// ViewKVStores is the key-value service of a namespace: GET kvstores/{store}/values, and GET, PUT
	// and DELETE kvstores/{store}/values/{key}.
	ViewKVStores View = "kvstores"
	// ViewLifecycle is the feed of lifecycle events of threads and sessions: GET lifecycle, as a stream with
	// watch=true.
	ViewLifecycle View = "lifecycle"
	// ViewUsage sums the usage of runs, of a namespace or, with agent=…, of one agent: GET usage.
	ViewUsage View = "usage"
	// ViewRetained lists the threads of a namespace that are kept without a Thread object: GET retained. DELETE
	// retained/{id} removes one for good.
	ViewRetained View = "retained"
	// ViewFirings is what a ScheduledEffect fired: GET firings/{name}. POST firings/{name}/cancel cancels one firing.
	ViewFirings View = "firings"
	// ViewBackups is everything that is stored of a namespace, as an archive: GET backups.
	ViewBackups View = "backups"
	// ViewRestores restores backups into a namespace: POST restores, POST restores/{backup}/rows, PUT
	// restores/{backup}/contents/{digest}, POST restores/{backup}/finish and restores/{backup}/effects, DELETE restores/{backup}.
	ViewRestores View = "restores"
	// ViewOrphans lists threads whose object is gone although their data was not retained: GET orphans. POST orphans/{id} retains one.
	ViewOrphans View = "orphans"
	// ViewHistory lists threads, of one namespace or of all: GET history.
	ViewHistory View = "history"
	// ViewWebhookDeliveries is what Webhooks are told: GET webhookdeliveries, and POST
	// webhookdeliveries/{id}/redeliver.
	ViewWebhookDeliveries View = "webhookdeliveries"
	// ViewSearches finds messages by their text across namespaces: GET searches?q=. It returns messages of the namespaces
	// in which the caller has get on threads/messages.
	ViewSearches View = "searches"
)

// KeyParameter is the query parameter for a key that a path cannot have: one with an empty part, "." or ".." between slashes,
// which servers and clients on the way would change. It stands for the {key} of kv/{key}, state/{key} and
// kvstores/{store}/values/{key}.
const KeyParameter = "key"

// Subresource is the part of the URL after the thread's name. RBAC rules name it "threads/<subresource>".
type Subresource string

// The subresources of threads.
const (
	SubresourceMessages  Subresource = "messages"
	SubresourceQueue     Subresource = "queue"
	SubresourceFiles     Subresource = "files"
	SubresourceEvents    Subresource = "events"
	SubresourceRuns      Subresource = "runs"
	SubresourceStop      Subresource = "stop"
	SubresourceDestroy   Subresource = "destroy"
	SubresourceContinue  Subresource = "continue"
	SubresourceTerminate Subresource = "terminate"
	SubresourceKV        Subresource = "kv"
	SubresourceCode      Subresource = "code"
	SubresourceEffects   Subresource = "effects"
	SubresourceLease     Subresource = "lease"
	SubresourceSkills    Subresource = "skills"
	SubresourceChildren  Subresource = "children"
	SubresourceEnv       Subresource = "env"

	SubresourceTools       Subresource = "tools"
	SubresourceDefinitions Subresource = "definitions"
	SubresourceParent      Subresource = "parent"
	SubresourceNotify      Subresource = "notify"
	SubresourceStatus      Subresource = "status"
	SubresourceExecution   Subresource = "execution"

	// SubresourceEndpoints is served by the code of ThreadEndpoint objects: any method of endpoints/{path}.
	SubresourceEndpoints Subresource = "endpoints"

	// SubresourceApprovals holds tool calls that wait for a person: GET approvals, POST approvals/{call}.
	SubresourceApprovals Subresource = "approvals"

	SubresourceState  Subresource = "state"
	SubresourceUsage  Subresource = "usage"
	SubresourceExport Subresource = "export"
	// SubresourceLogs holds the events that code wrote for people: code.log, handler.log, hook.failed and
	// task.failed. GET logs streams them as GET events does, and ends after the last one unless follow=true.
	SubresourceLogs   Subresource = "logs"
	SubresourceImport Subresource = "import"

	// SubresourceObserve streams the present value of a thread and then JSON Patches: GET observe.
	SubresourceObserve Subresource = "observe"
	// SubresourceFlush waits until a version of the thread is durable: GET flush?v=12.
	SubresourceFlush Subresource = "flush"

	// SubresourceCompact asks for a summary of older messages (MSG-12).
	SubresourceCompact Subresource = "compact"
	// SubresourceFork makes a new thread that begins with the messages of this one: POST fork.
	SubresourceFork Subresource = "fork"
	// SubresourceHandoff starts a new thread with the context of this one.
	SubresourceHandoff Subresource = "handoff"
	// SubresourceMemory searches the threads of the thread's agent and user by meaning: GET memory?q=. It returns
	// messages of the threads in which the caller has get on threads/messages.
	SubresourceMemory Subresource = "memory"

	SubresourceTruncate      Subresource = "truncate"
	SubresourceRelationships Subresource = "relationships"
)

// UsageRecords is the path below SubresourceUsage with the usage of each run.
const UsageRecords = "records"
