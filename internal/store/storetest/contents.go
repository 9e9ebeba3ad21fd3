package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// justNow is an upload time that is always recent, whatever the clock says.
const justNow = int64(1) << 60

// object returns the name of the object with the contents digest(n).
func object(n byte) string { return fmt.Sprint("objects/", n) }

// putFile returns an op that writes a file of n bytes with the contents digest(n).
func putFile(path string, n byte) *store.PutFile {
	return &store.PutFile{File: store.File{Path: path, Digest: digest(n), Size: int64(n)}, Object: object(n), Uploaded: justNow}
}

// copyFile returns an op that refers to existing contents.
func copyFile(path string, n byte) *store.PutFile {
	op := putFile(path, n)
	op.Object = ""
	return op
}

func describeContents(e *env) {
	Describe("contents of files", Label("FIL-07", "FIL-08"), func() {
		It("are one object for all files with those contents, freed with the last file", func(ctx SpecContext) {
			one, two := e.thread(ctx), e.thread(ctx)
			e.apply(ctx, one, putFile("/a", 1))
			again := putFile("/b", 1)
			again.Object = "objects/other"
			e.apply(ctx, two, again)
			Expect(again.Freed).To(Equal([]string{"objects/other"}), "the contents are there already")
			Expect(e.store.Contents(ctx, digest(1))).To(Equal(object(1)))
			e.apply(ctx, two, copyFile("/c", 1))

			for _, left := range []struct{ id, path string }{{one, "/a"}, {two, "/b"}} {
				op := &store.RemoveFile{Path: left.path}
				e.apply(ctx, left.id, op)
				Expect(op.Freed).To(BeEmpty())
			}
			op := &store.RemoveFile{Path: "/c"}
			e.apply(ctx, two, op)
			Expect(op.Freed).To(Equal([]string{object(1)}))
			Expect(e.store.Apply(ctx, one, nil, copyFile("/d", 1))).To(MatchError(store.ErrNoContents))
			_, err := e.store.File(ctx, one, "/d")
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("get a new object when theirs is missing", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, putFile("/a", 1))
			heal := putFile("/b", 1)
			heal.Object, heal.Instead = "objects/new", object(1)
			e.apply(ctx, id, heal)
			Expect(heal.Freed).To(BeEmpty())
			Expect(e.store.Contents(ctx, digest(1))).To(Equal("objects/new"))
		})

		It("are refused from an upload that is too old", func(ctx SpecContext) {
			id := e.thread(ctx)
			op := putFile("/a", 1)
			op.Uploaded = e.now()
			e.clock.Step(store.MaxUploadAge + time.Second)
			Expect(e.store.Apply(ctx, id, nil, op)).To(MatchError(store.ErrNoContents))
		})

		It("that no file refers to are swept when they were first seen long enough ago", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, putFile("/a", 1))
			all := []string{object(1), "objects/forgotten", "objects/late"}
			before := e.now()
			Expect(e.store.SweepObjects(ctx, all, before)).To(BeEmpty(), "a file may be about to refer to them")
			e.clock.Step(time.Minute)
			Expect(e.store.SweepObjects(ctx, all, before-1)).To(BeEmpty(), "not long enough ago")
			late := putFile("/b", 2)
			late.Object = "objects/late"
			e.apply(ctx, id, late)
			Expect(e.store.SweepObjects(ctx, all, before)).To(Equal([]string{"objects/forgotten"}))
			Expect(e.store.SweepObjects(ctx, []string{"objects/forgotten"}, before)).To(BeEmpty(), "it counts as new again")
			e.clock.Step(time.Minute)
			for range 2 {
				Expect(e.store.ForgetObject(ctx, "objects/forgotten")).To(Succeed())
			}
			Expect(e.store.SweepObjects(ctx, []string{"objects/forgotten"}, e.now())).To(BeEmpty(), "it was forgotten")
			Expect(e.store.SweepObjects(ctx, []string{"objects/forgotten"}, e.now())).To(Equal([]string{"objects/forgotten"}))
		})

		It("are never freed while a file has them, and never left behind, under concurrent use", func(ctx SpecContext) {
			const workers, rounds = 6, 30
			var ids []string
			for range workers {
				ids = append(ids, e.thread(ctx))
			}
			bucket := newObjects()
			var wg sync.WaitGroup
			for i, id := range ids {
				wg.Go(func() {
					defer GinkgoRecover()
					random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), uint64(i)))
					for round := range rounds {
						n := byte(1 + random.IntN(2))
						put := putFile("/f", n)
						if random.IntN(2) == 0 {
							put.Object = ""
						} else {
							put.Object = fmt.Sprint("objects/", i, "/", round)
							bucket.add(put.Object, n)
						}
						err := e.store.Apply(ctx, id, nil, put)
						if put.Object == "" && err != nil {
							Expect(err).To(MatchError(store.ErrNoContents))
							continue
						}
						Expect(err).NotTo(HaveOccurred())
						bucket.remove(put.Freed...)
						f, err := e.store.File(ctx, id, "/f")
						Expect(err).NotTo(HaveOccurred())
						o, err := e.store.Contents(ctx, f.Digest)
						Expect(err).NotTo(HaveOccurred())
						Expect(bucket.get(o)).To(Equal(n), "the file's bytes are there")
						if random.IntN(2) == 0 {
							remove := &store.RemoveFile{Path: "/f"}
							Expect(e.store.Apply(ctx, id, nil, remove)).To(Succeed())
							bucket.remove(remove.Freed...)
						}
					}
					freed, err := e.store.PurgeThread(ctx, id)
					Expect(err).NotTo(HaveOccurred())
					bucket.remove(freed...)
				})
			}
			wg.Wait()
			Expect(bucket.held).To(BeEmpty(), "no object is left behind")
		})
	})

	Describe("quotas of files", Label("FIL-08"), func() {
		limited := func(op *store.PutFile, bytes, files int64) *store.PutFile {
			op.Quota = store.FileQuota{Bytes: bytes, Files: files}
			return op
		}
		used := func(ctx SpecContext, id string) store.FileUsage {
			GinkgoHelper()
			u, err := e.store.FileUsage(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			return *u
		}

		It("are checked against running totals of files, folders and bytes", func(ctx SpecContext) {
			id := e.thread(ctx, putFile("/first", 3))
			Expect(used(ctx, id)).To(Equal(store.FileUsage{Files: 1, Bytes: 3}))
			e.apply(ctx, id, putFile("/a/b/c", 10), putFile("/a/b/d", 20), putFile("/first", 5))
			Expect(used(ctx, id)).To(Equal(store.FileUsage{Files: 3, Folders: 2, Bytes: 35}))
			e.apply(ctx, id, &store.PutFile{File: store.File{Path: "/a/b", Dir: true}}, &store.PutFile{File: store.File{Path: "/e", Dir: true}})
			e.apply(ctx, id, &store.RemoveFile{Path: "/a/b/c"}, &store.RemoveFile{Path: "/e"})
			Expect(used(ctx, id)).To(Equal(store.FileUsage{Files: 2, Folders: 2, Bytes: 25}))
			Expect(used(ctx, e.thread(ctx))).To(Equal(store.FileUsage{}))
			_, err := e.store.FileUsage(ctx, "00000000-0000-4000-8000-00000000ffff")
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("refuse the whole write above the limit, and accept writes that shrink", func(ctx SpecContext) {
			id := e.thread(ctx, limited(putFile("/a", 60), 100, 0))
			err := e.store.Apply(ctx, id, nil, limited(putFile("/b", 10), 100, 0), limited(putFile("/c", 31), 100, 0))
			Expect(err).To(MatchError(store.ErrQuota))
			Expect(err).To(MatchError(&store.QuotaError{Resource: "bytes", Limit: 100, Wanted: 101}))
			Expect(used(ctx, id)).To(Equal(store.FileUsage{Files: 1, Bytes: 60}))
			e.apply(ctx, id, limited(putFile("/b", 40), 100, 0))
			e.apply(ctx, id, limited(putFile("/a", 50), 20, 0)) // smaller than before, though still above the quota
			Expect(e.store.Apply(ctx, id, nil, limited(putFile("/a", 51), 20, 0))).To(MatchError(store.ErrQuota))
		})

		It("bound the number of files and folders", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, limited(putFile("/d/a", 1), 0, 3), limited(putFile("/d/b", 1), 0, 3))
			Expect(e.store.Apply(ctx, id, nil, limited(putFile("/d/c", 1), 0, 3))).To(MatchError(&store.QuotaError{Resource: "files", Limit: 3, Wanted: 4}))
			Expect(e.store.Apply(ctx, id, nil, limited(&store.PutFile{File: store.File{Path: "/e/f", Dir: true}}, 0, 3))).To(MatchError(store.ErrQuota))
			e.apply(ctx, id, limited(putFile("/d/a", 2), 0, 3))
		})

		It("of the thread precede the manager's", func(ctx SpecContext) {
			bound := func(n int64) *int64 { return &n }
			id := e.thread(ctx)
			version := e.info(ctx, id).Version
			e.apply(ctx, id, &store.SetFileQuota{Bytes: bound(10), Files: bound(0)})
			Expect(e.info(ctx, id).Version).To(Equal(version), "the conversation has not changed")
			Expect(used(ctx, id)).To(Equal(store.FileUsage{MaxBytes: bound(10), MaxFiles: bound(0)}))
			Expect(e.store.Apply(ctx, id, nil, limited(putFile("/a", 11), 100, 100))).To(MatchError(store.ErrQuota))
			e.apply(ctx, id, limited(putFile("/a", 5), 1, 1), limited(putFile("/b", 5), 1, 1))
			e.apply(ctx, id, &store.SetFileQuota{})
			Expect(e.store.Apply(ctx, id, nil, limited(putFile("/c", 5), 1, 1))).To(MatchError(store.ErrQuota))
		})
	})
}

// objects stands in for the bucket.
type objects struct {
	mu   sync.Mutex
	held map[string]byte
}

func newObjects() *objects { return &objects{held: map[string]byte{}} }

func (o *objects) add(name string, n byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[name] = n
}

func (o *objects) get(name string) byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held[name]
}

func (o *objects) remove(names ...string) {
	GinkgoHelper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range names {
		Expect(o.held).To(HaveKey(n), "freed once only")
		delete(o.held, n)
	}
}
