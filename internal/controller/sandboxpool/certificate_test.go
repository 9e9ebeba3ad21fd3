package sandboxpool_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/controller/sandboxpool"
)

// turning is an authority that changes right after it has issued its first certificate, as when another replica of
// the manager, or a connection to a sandbox, finds the change due at that moment.
type turning struct {
	sandboxpool.Authority
	issued int
}

func (t *turning) Fingerprint() string {
	if t.issued == 0 {
		return "before"
	}
	return "after"
}

func (t *turning) Server(pool, namespace string) (map[string][]byte, time.Time, error) {
	t.issued++
	return t.Authority.Server(pool, namespace)
}

var _ = Describe("The certificate of a pool", Label("COD-08"), func() {
	It("is issued again when the authority turned while it was issued", func(ctx SpecContext) {
		w := newWorld(ctx)
		a, o := &turning{Authority: w.authority}, w.options()
		o.Authority = a
		w.r = sandboxpool.New(o)
		for range 3 {
			w.reconcile(ctx)
		}
		Expect(a.issued).To(Equal(2))
	})
})
