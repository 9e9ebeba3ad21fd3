package storetest

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeFiles(e *env) {
	Describe("files", Label("FIL-02", "FIL-04"), func() {
		put := putFile
		paths := func(ctx SpecContext, id, prefix string, recursive bool) []string {
			GinkgoHelper()
			files, err := e.store.Files(ctx, id, prefix, recursive)
			Expect(err).NotTo(HaveOccurred())
			out := []string{}
			for _, f := range files {
				p := f.Path
				if f.Dir {
					p += "/"
				}
				out = append(out, p)
			}
			return out
		}

		It("keep every field", func(ctx SpecContext) {
			id := e.thread(ctx)
			f := store.File{Path: "/a.png", MimeType: "image/png", Digest: digest(1), Size: 10, Metadata: json.RawMessage(`{"k":1}`), Width: 3, Height: 4, CreatedAt: 9}
			e.apply(ctx, id, &store.PutFile{File: f, Object: object(1), Uploaded: e.now()})
			Expect(e.store.File(ctx, id, "/a.png")).To(Equal(&f))
			_, err := e.store.File(ctx, id, "/b.png")
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("create their folders, and are listed below a folder by path", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, put("/b/c/d.txt", 1), put("/a.txt", 2), put("/b-side.txt", 3), put("/b/e.txt", 4), put("/b0", 5))
			Expect(paths(ctx, id, "/", false)).To(Equal([]string{"/a.txt", "/b/", "/b-side.txt", "/b0"}))
			Expect(paths(ctx, id, "/b", false)).To(Equal([]string{"/b/c/", "/b/e.txt"}))
			Expect(paths(ctx, id, "/b", true)).To(Equal([]string{"/b/c/", "/b/c/d.txt", "/b/e.txt"}))
			Expect(paths(ctx, id, "/", true)).To(HaveLen(7))
			Expect(paths(ctx, id, "/none", true)).To(BeEmpty())
			Expect(paths(ctx, e.thread(ctx), "/", true)).To(BeEmpty())
		})

		It("are replaced, and the freed object is returned", func(ctx SpecContext) {
			id := e.thread(ctx)
			first := put("/a", 1)
			e.apply(ctx, id, first)
			Expect(first.Freed).To(BeEmpty())
			same, other := put("/a", 1), put("/a", 2)
			same.Object = ""
			e.apply(ctx, id, same)
			Expect(same.Freed).To(BeEmpty())
			e.apply(ctx, id, other)
			Expect(other.Freed).To(ConsistOf(object(1)))
			_, err := e.store.Contents(ctx, digest(1))
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.store.Contents(ctx, digest(2))).To(Equal(object(2)))
		})

		It("are removed, folders only when empty", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, put("/d/f", 1))
			Expect(e.store.Apply(ctx, id, nil, &store.RemoveFile{Path: "/d"})).To(MatchError(store.ErrFolder))
			op := &store.RemoveFile{Path: "/d/f"}
			e.apply(ctx, id, op)
			Expect(op.Freed).To(ConsistOf(object(1)))
			Expect(paths(ctx, id, "/", true)).To(Equal([]string{"/d/"}))
			e.apply(ctx, id, &store.RemoveFile{Path: "/d"})
			Expect(paths(ctx, id, "/", true)).To(BeEmpty())
			Expect(e.store.Apply(ctx, id, nil, &store.RemoveFile{Path: "/d"})).To(MatchError(store.ErrNotFound))
		})

		It("never have the path of a folder, nor a folder the path of a file", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, put("/d/f", 1))
			folder := func(p string) *store.PutFile { return &store.PutFile{File: store.File{Path: p, Dir: true}} }
			Expect(e.store.Apply(ctx, id, nil, put("/d", 2))).To(MatchError(store.ErrFolder))
			Expect(e.store.Apply(ctx, id, nil, folder("/d/f"))).To(MatchError(store.ErrNotFolder))
			Expect(e.store.Apply(ctx, id, nil, put("/d/f/g", 2))).To(MatchError(store.ErrNotFolder))
			Expect(e.store.Apply(ctx, id, nil, put("/d/f/g/h", 2))).To(MatchError(store.ErrNotFolder))
			version := e.info(ctx, id).Version
			e.apply(ctx, id, folder("/d"))
			Expect(e.info(ctx, id).Version).To(Equal(version))
			Expect(paths(ctx, id, "/", true)).To(Equal([]string{"/d/", "/d/f"}))
		})
	})
}
