package objects

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cached removes from an object what nothing here reads, before a cache keeps it. managedFields are half the size of a small object. Where a
// cache has the metadata only, such as of Secrets, the annotation of kubectl apply has the contents all the same.
func Cached(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return o, nil
}
