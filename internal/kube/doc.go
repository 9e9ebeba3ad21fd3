// Package kube implements the engine's ports with custom resources and pods: definitions read
// from the cache, children and effects declared as objects, sandboxes claimed from a pool. It holds no desired state
// of its own: it can read everything that it remembers from the API server again.
package kube
