// Package objects holds what the ports on Kubernetes and the controllers share about objects. It names, labels and owns
// the objects that the runtime creates. It finds what a spec refers to, has the field indexes of the cache, reads
// the contents of Secrets and ConfigMaps, and says what caches keep.
package objects
