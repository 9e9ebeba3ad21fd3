// Package objects holds what the ports on Kubernetes and the controllers share about objects: how those that the
// runtime creates are named, labelled and owned, what a spec refers to, the field indexes of the cache, and reading
// the contents of Secrets and ConfigMaps.
package objects
