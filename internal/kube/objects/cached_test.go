package objects

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// managed returns the metadata of an object that people have applied with kubectl.
func managed() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "keys", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"stringData":{"key":"k-e-y"}}`, "other": "stays"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
}

func TestCachesOfMetadataDoNotKeepContents(t *testing.T) {
	g := NewWithT(t)
	o := MetadataOf("Secret")
	o.ObjectMeta = managed()
	for range 2 { // a cache may do so again
		kept, err := Cached(o)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(kept).To(HaveField("ObjectMeta", metav1.ObjectMeta{Name: "keys", Annotations: map[string]string{"other": "stays"}}))
	}
}

// The manager writes whole objects, and must not take the annotation of kubectl away from people.
func TestCachesOfObjectsKeepAnnotations(t *testing.T) {
	g := NewWithT(t)
	kept, err := Cached(&skeinv1.Agent{ObjectMeta: managed()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kept).To(HaveField("Annotations", HaveLen(2)))
	g.Expect(kept).To(HaveField("ManagedFields", BeEmpty()))
}

func TestCachesKeepTombstonesAsTheyAre(t *testing.T) {
	g := NewWithT(t)
	gone := toolscache.DeletedFinalStateUnknown{Key: "n/keys"}
	g.Expect(Cached(gone)).To(Equal(gone))
}
