// Package v1alpha1 holds the wire types of the runtime API, group runtime.skein.dev, version v1alpha1: what happens
// inside a thread. The manager serves it as subresources of threads, through the Kubernetes API aggregation layer or
// directly to applications with a bearer token.
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
