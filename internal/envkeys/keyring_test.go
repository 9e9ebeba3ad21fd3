package envkeys_test

import (
	"bytes"
	"errors"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/envkeys"
)

func TestEnvKeys(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "envkeys")
}

var _ = Describe("A keyring", Label("ENV-05"), func() {
	var ring *envkeys.Keyring
	var text []byte
	BeforeEach(func() {
		var err error
		text, err = envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		ring = &envkeys.Keyring{}
		Expect(ring.Use(text)).To(BeTrue())
		Expect(ring.Use(append(text, '\n'))).To(BeFalse(), "the same")
	})

	It("opens what it sealed, for the same tree and name only", func() {
		sealed, id, err := ring.Seal("root", "KEY", []byte("value-of-key"))
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Primary()).To(Equal(id))
		Expect(bytes.Contains(sealed, []byte("value-of-key"))).To(BeFalse())
		Expect(ring.Open("root", "KEY", sealed)).To(BeEquivalentTo("value-of-key"))
		for _, other := range [][2]string{{"root", "KEY2"}, {"root2", "KEY"}} {
			_, err = ring.Open(other[0], other[1], sealed)
			Expect(err).To(MatchError(ContainSubstring("sealed for another")))
		}
		sealed[len(sealed)-1] ^= 1
		_, err = ring.Open("root", "KEY", sealed)
		Expect(err).To(HaveOccurred())
		for n := range len(sealed) {
			_, err = ring.Open("root", "KEY", sealed[:n])
			Expect(err).To(HaveOccurred())
			_, _, err = ring.Reseal(sealed[:n/2])
			Expect(err).To(HaveOccurred())
		}
	})

	It("seals old values under a new key without opening them", func() {
		sealed, old, err := ring.Seal("root", "KEY", []byte("v"))
		Expect(err).NotTo(HaveOccurred())
		rotated, primary, err := envkeys.Rotate(text)
		Expect(err).NotTo(HaveOccurred())
		Expect(primary).NotTo(Equal(old))
		Expect(ring.Use(rotated)).To(BeTrue())
		Expect(ring.Open("root", "KEY", sealed)).To(BeEquivalentTo("v"))
		fresh, id, err := ring.Reseal(sealed)
		Expect(err).NotTo(HaveOccurred())
		Expect(id).To(Equal(primary))

		without, err := envkeys.Remove(rotated, old)
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(without)).To(BeTrue())
		ids, p, err := envkeys.IDs(without)
		Expect(err).NotTo(HaveOccurred())
		Expect(ids).To(Equal([]uint32{primary}))
		Expect(p).To(Equal(primary))
		Expect(ring.Open("root", "KEY", fresh)).To(BeEquivalentTo("v"))
		_, err = ring.Open("root", "KEY", sealed)
		var unknown *envkeys.UnknownKeyError
		Expect(errors.As(err, &unknown)).To(BeTrue(), "%v", err)
		Expect(unknown.KeyID).To(Equal(old))
		_, _, err = ring.Reseal(sealed)
		Expect(errors.As(err, &unknown)).To(BeTrue(), "%v", err)
	})

	It("keeps its keys when a new keyset is invalid, and shows nothing of that keyset", func() {
		for _, bad := range []string{"", "{}", `{"primaryKeyId":1,"key":[{"secret-material":1}]}`, "secret-material"} {
			_, err := ring.Use([]byte(bad))
			Expect(err).To(HaveOccurred(), bad)
			Expect(err.Error()).NotTo(ContainSubstring("secret-material"))
		}
		_, _, err := ring.Seal("r", "n", nil)
		Expect(err).NotTo(HaveOccurred())
		empty := &envkeys.Keyring{}
		_, _, err = empty.Seal("r", "n", nil)
		Expect(err).To(MatchError(envkeys.ErrNoKeys))
		_, err = empty.Open("r", "n", nil)
		Expect(err).To(MatchError(envkeys.ErrNoKeys))
	})
})
