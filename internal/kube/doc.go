// Package kube keeps the engine's ports by custom resources and pods (DESIGN.md section 2): definitions
// read from the cache, children and effects declared as objects, sandboxes claimed from a pool. It holds
// no desired state of its own: whatever it remembers can be read again from the API server.
package kube
