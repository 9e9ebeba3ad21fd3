package thread_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

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

	It("have a bound together, so that each costs one page of a list", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		for n := range thread.MaxParts - 2 {
			Expect(e.bucket.WriteAll(ctx, fmt.Sprintf("uploads/t/upload-%d/%05d", n%7, n), nil, nil)).To(Succeed())
		}
		put := func(id string, n int, r io.Reader) error {
			u, err := st.Upload("/f", id)
			if err == nil {
				_, err = u.Put(ctx, n, r)
			}
			return err
		}
		const all = 20
		var come, ended sync.WaitGroup
		come.Add(all)
		failed := make([]error, all)
		for n := range all {
			ended.Go(func() { failed[n] = put("upload-new", n, &meeting{Reader: strings.NewReader("x"), come: &come}) })
		}
		ended.Wait()
		stored := 0
		for _, err := range failed {
			if err == nil {
				stored++
				continue
			}
			Expect(err).To(beInvalid("part", "complete or cancel them (DELETE files/{path}?upload=ID), or make the parts larger"))
		}
		Expect(stored).To(BeNumerically("<=", 2))
		for n := range 2 - stored {
			Expect(put("upload-last", n, strings.NewReader(""))).To(Succeed(), "what was refused takes no room")
		}
		Expect(e.objects()).To(HaveLen(thread.MaxParts))
		Expect(put("upload-more", 0, strings.NewReader(""))).To(beInvalid("part", `1000 parts that are not completed, and may have no more: "upload-0" (143 parts), "upload-1" (143 parts), `+
			`"upload-2" (143 parts), "upload-3" (143 parts), "upload-4" (142 parts), and `))
		Expect(put("upload-0", 0, strings.NewReader("again"))).To(Succeed(), "a part that is sent again replaces the first")
		u, err := st.Upload("/f", "upload-0")
		Expect(err).NotTo(HaveOccurred())
		Expect(u.Abort(ctx)).To(Succeed())
		Expect(put("upload-more", 0, strings.NewReader("x"))).To(Succeed())
	})

	It("make a file when an earlier version took more of them than this one", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		const parts = thread.MaxParts + 200
		for n := range parts {
			Expect(e.bucket.WriteAll(ctx, fmt.Sprintf("uploads/t/upload-old/%05d", n), []byte{byte('a' + n%26)}, nil)).To(Succeed())
		}
		u, err := st.Upload("/f", "upload-old")
		Expect(err).NotTo(HaveOccurred())
		_, err = u.Put(ctx, 7, strings.NewReader("x"))
		Expect(err).To(beInvalid("part", `"upload-old" (1000 parts): complete or cancel them`))
		_, err = u.Complete(ctx, thread.MaxCompleteParts+1, thread.WriteFileOptions{})
		Expect(err).To(beInvalid("parts", "give 1 to 10000"))
		rec, err := u.Complete(ctx, parts, thread.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.Size).To(BeEquivalentTo(parts))
		Expect(e.objects()).To(HaveLen(1), "the parts are removed")
	})

	It("are removed while a backup reads the bucket, which has nothing of them", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		b, err := e.BeginBackup(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(b.Close)
		for _, end := range []func(u *thread.Upload) error{
			func(u *thread.Upload) error { _, err := u.Complete(ctx, 1, thread.WriteFileOptions{}); return err },
			func(u *thread.Upload) error { return u.Abort(ctx) },
		} {
			u, err := st.Upload("/f", "upload-1")
			Expect(err).NotTo(HaveOccurred())
			_, err = u.Put(ctx, 0, strings.NewReader("x"))
			Expect(err).NotTo(HaveOccurred())
			Expect(end(u)).To(Succeed())
			Expect(e.objects()).To(HaveEach(HavePrefix("blobs/")))
		}
	})

	It("are kept for a day after they were sent again", func(ctx SpecContext) {
		e := newEnv(ctx)
		u, err := e.create(ctx, "t").Upload("/f", "upload-1")
		Expect(err).NotTo(HaveOccurred())
		for range 3 {
			_, err := u.Put(ctx, 0, strings.NewReader("x"))
			Expect(err).NotTo(HaveOccurred())
			Expect(e.Sweep(ctx)).To(BeZero())
			e.clock.Step(25 * time.Hour)
		}
		Expect(e.Sweep(ctx)).To(Equal(1))
	})
})
