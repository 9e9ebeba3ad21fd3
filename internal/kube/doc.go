// Package kube implements ports of the engine with objects: children and effects are declared as custom resources. The
// packages below it implement the other ports: definitions read from the cache, and sandboxes claimed from a pool. None
// of them holds desired state of its own: they can read everything that they remember from the API server again.
package kube
