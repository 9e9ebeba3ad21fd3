package main

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
)

var _ = Describe("The keys that seal variables", Label("ENV-05"), func() {
	It("are removed only when the manager has said that no value remains under them, or by force", func() {
		keyset, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		_, first, err := envkeys.IDs(keyset)
		Expect(err).NotTo(HaveOccurred())
		s := &corev1.Secret{Data: map[string][]byte{envkeys.SecretKey: keyset}}
		_, err = changeKeys(s, keysOptions{})
		Expect(err).NotTo(HaveOccurred())
		keys := func() (ids []uint32, primary uint32) {
			GinkgoHelper()
			ids, primary, err := envkeys.IDs(s.Data[envkeys.SecretKey])
			Expect(err).NotTo(HaveOccurred())
			return ids, primary
		}
		ids, primary := keys()
		Expect(ids).To(HaveLen(2))

		prune := keysOptions{prune: true}
		for _, says := range []map[string]string{nil, {skeinv1.AnnotationEnvSealedUnder: fmt.Sprint(first)}} {
			s.Annotations = says
			_, err = changeKeys(s, prune)
			Expect(err).To(MatchError(ContainSubstring("nothing was removed: the manager has not said yet")))
			ids, _ = keys()
			Expect(ids).To(HaveLen(2))
		}
		forced := s.DeepCopy()
		Expect(changeKeys(forced, keysOptions{prune: true, force: true})).To(HavePrefix("removed 1 keys"))
		s.Annotations = map[string]string{skeinv1.AnnotationEnvSealedUnder: fmt.Sprint(primary)}
		Expect(changeKeys(s, prune)).To(HavePrefix("removed 1 keys"))
		ids, _ = keys()
		Expect(ids).To(Equal([]uint32{primary}))
	})
})
