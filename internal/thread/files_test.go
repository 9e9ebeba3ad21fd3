package thread_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing/iotest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("files", Label("FIL-02", "FIL-04"), func() {
	It("are written, described, read, replaced and unlinked", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		rec, err := st.WriteFile(ctx, "reports//./q1.csv", strings.NewReader("a,b\n"), thread.WriteFileOptions{Metadata: json.RawMessage(`{"by":"me"}`)})
		Expect(err).NotTo(HaveOccurred())
		data, err := json.Marshal(rec)
		Expect(err).NotTo(HaveOccurred())
		Expect(data).To(MatchJSON(fmt.Sprintf(`{"path":"/reports/q1.csv","name":"q1.csv","mimeType":"text/csv","storage":"local","size":4,
			"isDirectory":false,"metadata":{"by":"me"},"createdAt":%d,"isChunked":false,"chunkCount":1}`, e.clock.Now().UnixMicro())))
		Expect(st.StatFile(ctx, "/reports/q1.csv")).To(Equal(rec))
		text, _ := read(ctx, st, "/reports/q1.csv")
		Expect(text).To(Equal("a,b\n"))

		write(ctx, st, "/reports/q1.csv", "other")
		text, _ = read(ctx, st, "/reports/q1.csv")
		Expect(text).To(Equal("other"))
		Expect(e.objects()).To(HaveLen(1), "the former contents are gone")

		Expect(st.Unlink(ctx, "/reports/q1.csv")).To(Succeed())
		Expect(st.StatFile(ctx, "/reports/q1.csv")).To(BeNil())
		_, ok := read(ctx, st, "/reports/q1.csv")
		Expect(ok).To(BeFalse())
		Expect(e.objects()).To(BeEmpty())
		Expect(st.Unlink(ctx, "/reports/q1.csv")).To(MatchError(store.ErrNotFound))
	})

	It("may be empty, and have a type", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		rec := write(ctx, st, "/empty", "")
		Expect(rec.MimeType).To(Equal("application/octet-stream"))
		Expect(rec.ChunkCount).To(Equal(int64(1)))
		text, ok := read(ctx, st, "/empty")
		Expect(text).To(BeEmpty())
		Expect(ok).To(BeTrue())
		rec, err := st.WriteFile(ctx, "/a.csv", strings.NewReader("x"), thread.WriteFileOptions{MimeType: "application/x-mine"})
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.MimeType).To(Equal("application/x-mine"))
		Expect(write(ctx, st, "/photo.JPG", "x").MimeType).To(Equal("image/jpeg"))
	})

	It("of images have their dimensions", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		for name, encode := range map[string]func(io.Writer) error{
			"/p.png": func(w io.Writer) error { return png.Encode(w, image.NewGray(image.Rect(0, 0, 31, 17))) },
			"/j.jpg": func(w io.Writer) error { return jpeg.Encode(w, image.NewGray(image.Rect(0, 0, 31, 17)), nil) },
			"/g.gif": func(w io.Writer) error { return gif.Encode(w, image.NewGray(image.Rect(0, 0, 31, 17)), nil) },
		} {
			var b bytes.Buffer
			Expect(encode(&b)).To(Succeed())
			rec := write(ctx, st, name, b.String())
			Expect([]int{rec.Width, rec.Height}).To(Equal([]int{31, 17}), name)
		}
		Expect(write(ctx, st, "/broken.png", "\x89PNG\r\n\x1a\nnot really").Width).To(BeZero())
	})

	DescribeTable("refuse invalid paths", func(ctx SpecContext, path, text string) {
		st := newEnv(ctx).create(ctx, "t")
		_, err := st.WriteFile(ctx, path, strings.NewReader("x"), thread.WriteFileOptions{})
		Expect(err).To(beInvalid("path", text))
		_, err = st.StatFile(ctx, path)
		if path != "/" && path != "" {
			Expect(err).To(beInvalid("path", text))
		}
		_, _, err = st.OpenFile(ctx, path)
		Expect(err).To(beInvalid("path", text))
		_, err = st.Mkdir(ctx, path)
		Expect(err).To(beInvalid("path", text))
		Expect(st.Unlink(ctx, path)).To(beInvalid("path", text))
		Expect(st.Rmdir(ctx, path)).To(beInvalid("path", text))
	},
		Entry("with a parent folder", "/a/../../etc/passwd", `".."`),
		Entry("with a parent folder at the end", "a/..", `".."`),
		Entry("with a NUL", "/a\x00b", "without NUL"),
		Entry("with invalid UTF-8", "/a\xff", "UTF-8"),
		Entry("with too many bytes", "/"+strings.Repeat("a/", 600), "use a shorter one"),
		Entry("with a name that is too long", "/"+strings.Repeat("a", 256), "use a shorter name"),
		Entry("with the root", "/", "name a file"),
		Entry("with an empty path", "", "name a file"),
	)

	It("and folders cannot replace each other", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		write(ctx, st, "/d/f", "x")
		_, err := st.WriteFile(ctx, "/d", strings.NewReader("x"), thread.WriteFileOptions{})
		Expect(err).To(And(beInvalid("path", "/d is a folder"), MatchError(store.ErrFolder)))
		_, err = st.WriteFile(ctx, "/d/f/g", strings.NewReader("x"), thread.WriteFileOptions{})
		Expect(err).To(And(beInvalid("path", "a file has that path, or one above it"), MatchError(store.ErrNotFolder)))
		_, _, err = st.OpenFile(ctx, "/d")
		Expect(err).To(beInvalid("path", "/d is a folder"))
		Expect(st.Unlink(ctx, "/d")).To(beInvalid("path", "/d is a folder"))
		Expect(st.Rmdir(ctx, "/d/f")).To(beInvalid("path", "/d/f is a file"))
		_, err = st.Mkdir(ctx, "/d/f")
		Expect(err).To(beInvalid("path", "cannot be a folder"))
		Expect(st.Rmdir(ctx, "/d")).To(beInvalid("path", "not empty"))
		Expect(st.Unlink(ctx, "/d/f")).To(Succeed())
		Expect(st.Rmdir(ctx, "/d")).To(Succeed())
		Expect(st.Rmdir(ctx, "/d")).To(MatchError(store.ErrNotFound))
	})

	It("are listed by folder and counted", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		write(ctx, st, "/b/c.txt", "123")
		write(ctx, st, "/a.txt", "12")
		dir, err := st.Mkdir(ctx, "e/f/")
		Expect(err).NotTo(HaveOccurred())
		Expect(dir.Path).To(Equal("/e/f"))
		Expect(dir.IsDirectory).To(BeTrue())
		_, err = st.Mkdir(ctx, "/e/f")
		Expect(err).NotTo(HaveOccurred())
		listing, err := st.ReadDir(ctx, "/")
		Expect(err).NotTo(HaveOccurred())
		names := []string{}
		for _, entry := range listing.Entries {
			names = append(names, entry.Name)
		}
		Expect(names).To(Equal([]string{"a.txt", "b", "e"}))
		_, err = st.ReadDir(ctx, "/none")
		Expect(err).To(MatchError(store.ErrNotFound))
		_, err = st.ReadDir(ctx, "/a.txt")
		Expect(err).To(beInvalid("path", "is a file"))
		Expect(st.StatFile(ctx, "/")).To(HaveField("IsDirectory", true))
		Expect(st.FileStats(ctx)).To(Equal(&thread.FileStats{FileCount: 2, DirectoryCount: 3, TotalSize: 5}))
		all, err := st.ListFiles(ctx, "/b", true)
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(HaveLen(1))
	})
})

var _ = Describe("large files", Label("FIL-03"), func() {
	It("are streamed both ways in bounded memory", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		const size = 256 << 20
		source := &noise{left: size, random: rand.NewChaCha8([32]byte{1}), sum: sha256.New()}
		meter := &memoryMeter{Reader: source, each: 64 << 20}
		rec, err := st.WriteFile(ctx, "/big.bin", meter, thread.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.Size).To(Equal(int64(size)))
		Expect(rec.ChunkCount).To(Equal(int64(size / thread.ChunkSize)))
		Expect(rec.IsChunked).To(BeTrue())

		rc, _, err := st.OpenFile(ctx, "/big.bin")
		Expect(err).NotTo(HaveOccurred())
		defer rc.Close()
		back := &memoryMeter{Reader: rc, each: 64 << 20}
		sum := sha256.New()
		_, err = io.Copy(sum, back)
		Expect(err).NotTo(HaveOccurred())
		Expect(sum.Sum(nil)).To(Equal(source.sum.Sum(nil)))
		Expect(max(meter.peak, back.peak)).To(BeNumerically("<", 64<<20), "bytes on the heap")
	})

	It("leave nothing behind when the sender disconnects, and report whose fault it was", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		broken := errors.New("the client went away")
		for _, before := range []int{10, 1 << 20} {
			_, err := st.WriteFile(ctx, "/f", io.MultiReader(strings.NewReader(strings.Repeat("x", before)), iotest.ErrReader(broken)), thread.WriteFileOptions{})
			Expect(err).To(MatchError(broken))
			Expect(errors.Is(err, store.ErrUnavailable)).To(BeFalse())
		}
		Expect(e.objects()).To(BeEmpty())
		Expect(st.StatFile(ctx, "/f")).To(BeNil())
	})

	It("leave nothing behind when the call is cancelled", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		over, cancel := context.WithCancel(ctx)
		_, err := st.WriteFile(over, "/f", &cancelling{Reader: &noise{left: 10 << 20, random: rand.NewChaCha8([32]byte{}), sum: sha256.New()}, after: 5 << 20, cancel: cancel}, thread.WriteFileOptions{})
		Expect(err).To(MatchError(context.Canceled))
		Expect(e.objects()).To(BeEmpty())
	})

	It("are limited in size", Label("FIL-08"), func(ctx SpecContext) {
		e := newEnv(ctx, func(o *thread.Options) { o.MaxFileBytes = 1 << 20 })
		st := e.create(ctx, "t")
		write(ctx, st, "/fits", strings.Repeat("x", 1<<20))
		_, err := st.WriteFile(ctx, "/more", strings.NewReader(strings.Repeat("x", 1<<20+1)), thread.WriteFileOptions{})
		Expect(err).To(beInvalid("data", "more than 1048576 bytes"))
		Expect(e.objects()).To(HaveLen(1))
		_, _, err = st.ReadFile(ctx, "/fits", 10, 0)
		Expect(err).To(beInvalid("path", "read it as a stream"))
		data, rec, err := st.ReadFile(ctx, "/fits", 1<<20, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(data).To(HaveLen(1 << 20))
		Expect(rec.Path).To(Equal("/fits"))
	})

	It("are stored once for all threads", func(ctx SpecContext) {
		e := newEnv(ctx)
		one, two := e.create(ctx, "one"), e.create(ctx, "two")
		large := strings.Repeat("0123456789abcdef", 1<<16)
		write(ctx, one, "/a", large)
		write(ctx, two, "/b", large)
		write(ctx, two, "/c", large)
		Expect(e.objects()).To(HaveLen(1))
		Expect(one.Unlink(ctx, "/a")).To(Succeed())
		Expect(two.Unlink(ctx, "/b")).To(Succeed())
		data, _ := read(ctx, two, "/c")
		Expect(data).To(Equal(large))
		Expect(two.Unlink(ctx, "/c")).To(Succeed())
		Expect(e.objects()).To(BeEmpty())
	})
})

// noise is random bytes with their checksum.
type noise struct {
	left   int
	random *rand.ChaCha8
	sum    hash.Hash
}

func (n *noise) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), n.left)]
	k, err := n.random.Read(p)
	n.left -= k
	_, _ = n.sum.Write(p[:k])
	return k, err
}

// memoryMeter measures the heap now and then while it is read.
type memoryMeter struct {
	io.Reader
	each, since int
	peak        uint64
}

func (m *memoryMeter) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if m.since += n; m.since >= m.each {
		m.since = 0
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		m.peak = max(m.peak, s.HeapAlloc)
	}
	return n, err
}

// cancelling cancels after so many bytes were read.
type cancelling struct {
	io.Reader
	after  int
	cancel func()
}

func (c *cancelling) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.after -= n; c.after <= 0 {
		c.cancel()
	}
	return n, err
}
