// Package v1alpha1 holds the wire types of the runtime API, group runtime.skein.dev, version v1alpha1:
// what happens inside a thread, served by the manager as subresources of threads through the Kubernetes
// API aggregation layer or directly to applications with a bearer token.
//
// The URL space is
//
//	/apis/runtime.skein.dev/v1alpha1/namespaces/{namespace}/threads/{thread}
//	/apis/runtime.skein.dev/v1alpha1/namespaces/{namespace}/threads/{thread}/{subresource}[/{path}]
//
//	/apis/runtime.skein.dev/v1alpha1/namespaces/{namespace}/{view}
//	/apis/runtime.skein.dev/v1alpha1/{view}[/{name}]
//
// where {thread} is the name of the Thread object or any spelling of its id: the UUID, T-<uuid>,
// thrd_<32 hex digits> or, where it is unambiguous, the last 12 hex digits of the UUID.
// Errors are Kubernetes Status objects.
//
// Times are microseconds since 1970 unless a field says otherwise; sizes are bytes. Field names of
// messages, files and records are those of the ThreadState API, which is why some have underscores.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the runtime API.
var GroupVersion = schema.GroupVersion{Group: "runtime.skein.dev", Version: "v1alpha1"}

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
	// ViewFirings is what a ScheduledEffect fired: GET firings/{name}.
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
)

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
)

// UsageRecords is the path below SubresourceUsage with the usage of each run.
const UsageRecords = "records"

// Limits of the server. It refuses a request that exceeds one, with a Status that says so.
const (
	// MaxBodyBytes is the maximum size of a JSON body. The bytes of a file are not JSON and have no such limit.
	MaxBodyBytes = 1 << 20
	// MaxContentBytes is the maximum size of a message's content.
	MaxContentBytes = 256 << 10
	// MaxPageSize is the maximum limit of a list.
	MaxPageSize = 1000
	// DefaultPageSize is the limit of a list when the request sets none.
	DefaultPageSize = 100
)

// HeaderIdempotencyKey carries the key of a write, in place of the body's field. A repeat of a write with the same
// key changes nothing.
const HeaderIdempotencyKey = "Idempotency-Key"

// HeaderIdempotentReplayed is "true" on the stored answer to an earlier request with the same key.
const HeaderIdempotentReplayed = "Idempotent-Replayed"

// HeaderLease carries the token of a lease. A write with it fails with a conflict, and changes nothing, once the
// lease has ended or passed to another holder.
const HeaderLease = "Skein-Lease"

// HeaderFileRecord carries the FileRecord, as JSON, with the bytes of a file.
const HeaderFileRecord = "Skein-File-Record"

// HeaderFileMetadata carries the metadata of a file that is written, as a JSON object. It is optional.
const HeaderFileMetadata = "Skein-File-Metadata"

// HeaderEndpoint names the ThreadEndpoint whose code made the answer. Answers of Skein itself, such as errors, do not
// have it.
const HeaderEndpoint = "Skein-Endpoint"

// TypeMetaOf returns the kind and version in an answer of this API.
func TypeMetaOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: GroupVersion.String()}
}
