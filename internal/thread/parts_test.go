package thread_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// meeting is a reader that begins once all others have come.
type meeting struct {
	io.Reader
	come *sync.WaitGroup
	once sync.Once
}

func (m *meeting) Read(b []byte) (int, error) {
	m.once.Do(func() {
		m.come.Done()
		m.come.Wait()
	})
	return m.Reader.Read(b)
}

var _ = Describe("parts of uploads that come at once", Label("FIL-08"), func() {
	It("do not exceed the quota together", func(ctx SpecContext) {
		e := newEnv(ctx, func(o *thread.Options) { o.FileQuota = store.FileQuota{Bytes: 100} })
		st := e.create(ctx, "t")
		put := func(ctx context.Context, n int, r io.Reader) error {
			u, err := st.Upload("/f", fmt.Sprint("upload-", n))
			if err == nil {
				_, err = u.Put(ctx, 0, r)
			}
			return err
		}
		const all = 20
		var come, ended sync.WaitGroup
		come.Add(all)
		failed := make([]error, all)
		for n := range all {
			ended.Go(func() {
				failed[n] = put(ctx, n, &meeting{Reader: strings.NewReader(strings.Repeat("x", 30)), come: &come})
			})
		}
		ended.Wait()
		var stored int
		for _, err := range failed {
			if err == nil {
				stored++
				continue
			}
			var quota *store.QuotaError
			Expect(errors.As(err, &quota)).To(BeTrue(), "%v", err)
			Expect(quota.Resource).To(Equal("bytes"))
		}
		Expect(stored).To(BeNumerically("<=", 3))
		for n := range 3 - stored {
			Expect(put(ctx, all+n, strings.NewReader(strings.Repeat("x", 30)))).To(Succeed(), "what was refused takes no room")
		}
		Expect(put(ctx, 2*all, strings.NewReader(strings.Repeat("x", 30)))).To(MatchError(store.ErrQuota))
	})
})
