// Package apiserver serves the runtime API (K8S-04): the content of threads, as subresources of
// threads in the group runtime.skein.dev. Clients reach it through the Kubernetes API aggregation layer, or directly
// with bearer tokens.
//
// The server is the generic server of k8s.io/apiserver. Its handler chain provides delegated authentication (front
// proxy, client certificates, TokenReview), delegated authorization (SubjectAccessReview), audit, deadlines and graceful
// shutdown. Its in-flight limits, which all callers would share, are off: package flow bounds each user and namespace, and answers 429 where a filter
// would take a full queue for wrong credentials or a fault.
// The handlers behind it are our own instead of REST storage, because the answers are streams, pages and files, not
// objects with resource versions. docs/adr/0004-runtime-api-server.md has the reasons. One rule keeps authorization sound: a handler is always chosen from the RequestInfo that was authorized,
// never by parsing the URL again.
//
// This package has the server and the table of its routes (routes.go). Package router dispatches requests, and each
// resource has a package of its own for its handlers.
package apiserver
