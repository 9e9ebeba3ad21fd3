package envkeys_test

import (
	"bytes"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/envkeys"
)

func TestKeysTravelUnderAPassphrase(t *testing.T) {
	g := NewWithT(t)
	old, err := envkeys.Generate()
	g.Expect(err).NotTo(HaveOccurred())
	ring := &envkeys.Keyring{}
	_, err = ring.Use(old)
	g.Expect(err).NotTo(HaveOccurred())
	sealed, id, err := ring.Seal("root", "TOKEN", []byte("hush"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ring.Has(id)).To(BeTrue())

	wrapped, err := envkeys.Wrap(old, []byte("correct horse battery"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wrapped).NotTo(ContainSubstring("value"))
	_, err = envkeys.Unwrap(wrapped, []byte("correct horse batterY"))
	g.Expect(err).To(MatchError(envkeys.ErrPassphrase))
	_, err = envkeys.Unwrap(bytes.Replace(wrapped, []byte(`"time":3`), []byte(`"time":3000000`), 1), []byte("correct horse battery"))
	g.Expect(err).To(MatchError(ContainSubstring("cannot be read")), "a damaged file does not make the program work for hours")
	_, err = envkeys.Wrap(old, []byte("short"))
	g.Expect(err).To(MatchError(ContainSubstring("use at least 12")))
	opened, err := envkeys.Unwrap(wrapped, []byte("correct horse battery"))
	g.Expect(err).NotTo(HaveOccurred())

	own, err := envkeys.Generate()
	g.Expect(err).NotTo(HaveOccurred())
	merged, err := envkeys.Merge(own, opened)
	g.Expect(err).NotTo(HaveOccurred())
	again, err := envkeys.Merge(merged, opened)
	g.Expect(err).NotTo(HaveOccurred())
	ids, primary, err := envkeys.IDs(again)
	g.Expect(err).NotTo(HaveOccurred())
	_, ownPrimary, err := envkeys.IDs(own)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ids).To(ConsistOf(id, ownPrimary))
	g.Expect(primary).To(Equal(ownPrimary))
	other := &envkeys.Keyring{}
	g.Expect(other.Has(id)).To(BeFalse())
	_, err = other.Use(again)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other.Open("root", "TOKEN", sealed)).To(Equal([]byte("hush")))
}
