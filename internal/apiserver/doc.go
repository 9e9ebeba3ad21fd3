// Package apiserver serves the runtime API (DESIGN.md section 8, K8S-04): what happens inside
// threads, as subresources of threads in the group runtime.skein.dev, behind the Kubernetes API
// aggregation layer and directly to applications with bearer tokens.
//
// The frame is k8s.io/apiserver's generic server: delegated authentication (front proxy, client
// certificates, TokenReview), delegated authorization (SubjectAccessReview), audit, in-flight bounds,
// deadlines and graceful shutdown are its handler chain. The handlers behind it are our own rather than
// REST storage, because the answers are streams, pages and files, not objects with resource versions.
// docs/adr/0004-runtime-api-server.md has the reasons. One rule follows from it and keeps authorization
// honest: a handler is chosen from the very RequestInfo that was authorized, never by reading the URL again.
package apiserver
