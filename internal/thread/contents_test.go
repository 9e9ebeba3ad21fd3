package thread_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("copying files between threads", Label("FIL-07"), func() {
	It("moves no bytes and returns the paths in the receiver", func(ctx SpecContext) {
		e := newEnv(ctx)
		from, to := e.create(ctx, "from"), e.create(ctx, "to")
		write(ctx, from, "/out/result.csv", "1\n")
		write(ctx, to, "/attachments/result.csv", "something else")
		given, err := to.CopyFilesFrom(ctx, from, []string{"/out/result.csv"})
		Expect(err).NotTo(HaveOccurred())
		Expect(given).To(Equal([]store.Attachment{{Path: "/attachments/result-2.csv", Name: "result-2.csv", MimeType: "text/csv", Size: 2}}))
		data, _ := read(ctx, to, "/attachments/result-2.csv")
		Expect(data).To(Equal("1\n"))
		Expect(e.objects()).To(HaveLen(2))

		again, err := to.CopyFilesFrom(ctx, from, []string{"/out/result.csv"})
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(given), "a repeat copies nothing")

		Expect(from.Unlink(ctx, "/out/result.csv")).To(Succeed())
		data, _ = read(ctx, to, "/attachments/result-2.csv")
		Expect(data).To(Equal("1\n"))
		none, err := to.CopyFilesFrom(ctx, from, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(none).To(BeEmpty())
	})

	It("copies the final content when the source changes meanwhile", func(ctx SpecContext) {
		e := newEnv(ctx)
		write(ctx, e.create(ctx, "from"), "/f", "first")
		e.create(ctx, "to")
		between := &interleaved{Store: e.store}
		svc := thread.NewService(thread.Options{Store: between, Blobs: e.bucket, Clock: e.clock})
		from, err := svc.Open(ctx, "from")
		Expect(err).NotTo(HaveOccurred())
		to, err := svc.Open(ctx, "to")
		Expect(err).NotTo(HaveOccurred())
		between.afterFile = func() { write(ctx, from, "/f", "second") }
		between.beforeApply = func() { write(ctx, from, "/f", "third") }
		between.armed = true
		given, err := to.CopyFilesFrom(ctx, from, []string{"/f"})
		Expect(err).NotTo(HaveOccurred())
		data, ok := read(ctx, to, given[0].Path)
		Expect(ok).To(BeTrue())
		Expect(data).To(Equal("third"))
		Expect(e.objects()).To(HaveLen(1))

		between.armed = false
		write(ctx, from, "/f", "fourth")
		between.beforeApply, between.armed = func() { Expect(from.Unlink(ctx, "/f")).To(Succeed()) }, true
		_, err = to.CopyFilesFrom(ctx, from, []string{"/f"})
		Expect(err).To(beInvalid("attachments", "there is no file /f"))
	})

	It("copies all or none", func(ctx SpecContext) {
		e := newEnv(ctx)
		from, to := e.create(ctx, "from"), e.create(ctx, "to")
		write(ctx, from, "/a", "1")
		_, err := to.CopyFilesFrom(ctx, from, []string{"/a", "/none"})
		Expect(err).To(beInvalid("attachments", "there is no file /none"))
		Expect(to.FindFiles(ctx, "**")).To(HaveField("Paths", BeEmpty()))
		_, err = from.Mkdir(ctx, "/d")
		Expect(err).NotTo(HaveOccurred())
		_, err = to.CopyFilesFrom(ctx, from, []string{"/d"})
		Expect(err).To(beInvalid("attachments", "is a folder"))
		Expect(from.Unlink(ctx, "/a")).To(Succeed())
		Expect(e.objects()).To(BeEmpty(), "a failed copy keeps no contents")
	})
})

var _ = Describe("contents", func() {
	It("are never removed while a file has them, under concurrent writes, copies and removals", func(ctx SpecContext) {
		e := newEnv(ctx)
		const workers, rounds = 8, 40
		var states []*thread.State
		for i := range workers {
			states = append(states, e.create(ctx, fmt.Sprint("t", i)))
		}
		var wg sync.WaitGroup
		for i, st := range states {
			wg.Go(func() {
				defer GinkgoRecover()
				random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), uint64(i)))
				for range rounds {
					data := fmt.Sprint("contents ", random.IntN(2)) // few values, so that all compete for the same two
					write(ctx, st, "/f", data)
					got, ok := read(ctx, st, "/f")
					Expect(ok).To(BeTrue())
					Expect(got).To(Equal(data))
					if given, err := st.CopyFilesFrom(ctx, states[random.IntN(workers)], []string{"/f"}); err == nil {
						got, ok = read(ctx, st, given[0].Path)
						Expect(ok).To(BeTrue())
						Expect(got).To(HavePrefix("contents "))
						Expect(st.Unlink(ctx, given[0].Path)).To(Succeed())
					} else {
						Expect(thread.IsInvalid(err)).To(BeTrue(), err.Error())
					}
					Expect(st.Unlink(ctx, "/f")).To(Succeed())
				}
			})
		}
		wg.Wait()
		Expect(e.objects()).To(BeEmpty())
	})

	It("that are lost cause a clear error, not an endless search", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		write(ctx, st, "/f", "x")
		Expect(os.Remove(filepath.Join(e.blobDir, e.objects()[0]))).To(Succeed())
		_, _, err := st.OpenFile(ctx, "/f")
		Expect(err).To(MatchError(And(ContainSubstring("/f of thread t"), ContainSubstring("not in the bucket"))))
		write(ctx, st, "/f", "x") // restores the contents
		data, _ := read(ctx, st, "/f")
		Expect(data).To(Equal("x"))
	})

	It("that a crash left behind are swept when they are old", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		write(ctx, st, "/kept", "kept")
		for _, key := range []string{"blobs/ab/" + strings.Repeat("c", 62), "tmp/half"} {
			Expect(e.bucket.WriteAll(ctx, key, []byte("left behind"), nil)).To(Succeed())
		}
		Expect(e.Sweep(ctx)).To(BeZero(), "they may still be in the middle of a write")
		e.clock.Step(23 * time.Hour)
		Expect(e.Sweep(ctx)).To(BeZero(), "they may still be written")
		e.clock.Step(2 * time.Hour)
		Expect(e.Sweep(ctx)).To(Equal(2))
		Expect(e.objects()).To(HaveLen(1))
		data, _ := read(ctx, st, "/kept")
		Expect(data).To(Equal("kept"))
	})

	It("that cannot be stored are reported as an outage, not as the caller's mistake", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		Expect(os.RemoveAll(e.blobDir)).To(Succeed())
		Expect(os.WriteFile(e.blobDir, nil, 0o600)).To(Succeed())
		_, err := st.WriteFile(ctx, "/f", strings.NewReader("x"), thread.WriteFileOptions{})
		Expect(err).To(MatchError(store.ErrUnavailable))
		Expect(st.StatFile(ctx, "/f")).To(BeNil())
	})
})

// interleaved is a store that does something between the first read of a file and the write that follows.
type interleaved struct {
	store.Store
	armed                  bool
	afterFile, beforeApply func()
}

func (i *interleaved) once(fn *func()) {
	if do := *fn; i.armed && do != nil {
		*fn = nil
		i.armed = false // the operations made here pass through this store too
		do()
		i.armed = true
	}
}

func (i *interleaved) File(ctx context.Context, threadID, path string) (*store.File, error) {
	f, err := i.Store.File(ctx, threadID, path)
	i.once(&i.afterFile)
	return f, err
}

func (i *interleaved) Apply(ctx context.Context, threadID string, fence *store.Fence, ops ...store.Op) error {
	i.once(&i.beforeApply)
	return i.Store.Apply(ctx, threadID, fence, ops...)
}
