package storetest

import (
	"encoding/json"
	"strings"

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

		It("come in pages, which end early when their metadata is large, and can do without it", func(ctx SpecContext) {
			id := e.thread(ctx)
			large := json.RawMessage(`{"k":"` + strings.Repeat("x", 40<<10) + `"}`)
			for i, p := range []string{"/b", "/b/a", "/b/c", "/b/d", "/b/d/e", "/b0"} {
				f := store.File{Path: p, Dir: true, Metadata: large}
				if p == "/b/c" {
					f.Metadata = json.RawMessage(`{"k":1}`)
				}
				f.CreatedAt = int64(i + 1)
				e.apply(ctx, id, &store.PutFile{File: f})
			}
			all, err := e.store.Files(ctx, id, "/", true)
			Expect(err).NotTo(HaveOccurred())
			Expect(all).To(HaveLen(6))
			page := func(q store.FileQuery) (files []store.File, more bool) {
				GinkgoHelper()
				files, more, err := e.store.FilesPage(ctx, id, q)
				Expect(err).NotTo(HaveOccurred())
				return files, more
			}
			for _, q := range []store.FileQuery{{Folder: "/", Recursive: true}, {Folder: "/", Recursive: true, Offset: 2}, {Folder: "/", Recursive: true, After: "/b/a"}} {
				files, more := page(q)
				Expect(files).To(Equal(all[6-len(files):]), "%+v", q)
				Expect(more).To(BeFalse())
			}
			files, more := page(store.FileQuery{Folder: "/b"})
			Expect(files).To(Equal(all[1:4]))
			Expect(more).To(BeFalse())
			files, more = page(store.FileQuery{Folder: "/b", Limit: 1, After: "/b/a"})
			Expect(files).To(Equal(all[2:3]))
			Expect(more).To(BeTrue())
			files, more = page(store.FileQuery{Folder: "/b", Recursive: true, MaxBytes: 60 << 10})
			Expect(files).To(Equal(all[1:3]), "a large one and a small one")
			Expect(more).To(BeTrue())
			files, more = page(store.FileQuery{Folder: "/b", MaxBytes: 1, Offset: 2})
			Expect(files).To(Equal(all[3:4]), "one at least")
			Expect(more).To(BeFalse())
			for _, recursive := range []bool{false, true} {
				files, _ = page(store.FileQuery{Folder: "/b", Recursive: recursive, MaxBytes: 10 << 10, Bare: true})
				Expect(files).To(And(ContainElement(HaveField("Path", "/b/d")), HaveEach(HaveField("Metadata", BeNil()))))
			}
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
