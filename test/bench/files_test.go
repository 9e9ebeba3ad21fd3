package bench

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// copied copies a plain file to disk, as safely as a thread's file is kept: bytes and name are synced.
func copied(from, to string) {
	GinkgoHelper()
	in, err := os.Open(from)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{in}) // through memory, as bytes from a network come
	Expect(err).NotTo(HaveOccurred())
	Expect(out.Sync()).To(Succeed())
	Expect(out.Close()).To(Succeed())
	dir, err := os.Open(filepath.Dir(to))
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = dir.Close() }()
	Expect(dir.Sync()).To(Succeed())
}

var _ = Describe("Files", Label("files"), func() {
	DescribeTable("are written and read, beside plain copies of files", func(ctx SpecContext, name string, size int64, rounds int) {
		dir := GinkgoT().TempDir()
		st := openSQLite(ctx)
		bucket, err := thread.OpenBucket(ctx, "file://"+filepath.Join(dir, "blobs"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(bucket.Close)
		threads := thread.NewService(thread.Options{Store: st, Blobs: bucket})
		_, _, err = threads.Create(ctx, thread.NewThread{Thread: store.Thread{ID: "t", Namespace: "default", Name: "t", Agent: "a"}})
		Expect(err).NotTo(HaveOccurred())
		state, err := threads.Open(ctx, "t")
		Expect(err).NotTo(HaveOccurred())

		var write, plainWrite, read, plainRead time.Duration
		for round := range rounds { // one beside the other, as the machine's mood changes
			source := filepath.Join(dir, "source")
			f, err := os.Create(source)
			Expect(err).NotTo(HaveOccurred())
			_, err = io.Copy(f, io.LimitReader(rand.NewChaCha8([32]byte{byte(round), byte(round >> 8)}), size)) // new contents each time
			Expect(err).NotTo(HaveOccurred())
			Expect(f.Close()).To(Succeed())
			target := filepath.Join(dir, "target")
			plainWrite += timed(func() { copied(source, target) })
			write += timed(func() { writeFile(ctx, state, source) })
			plainRead += timed(func() { drain(os.Open(target)) })
			read += timed(func() {
				rc, _, err := state.OpenFile(ctx, "/f")
				drain(rc, err)
			})
			Expect(os.Remove(target)).To(Succeed())
			Expect(state.Unlink(ctx, "/f")).To(Succeed())
		}
		n := time.Duration(rounds)
		figure(name+" written", "%s, a plain copy %s: %.2f times", round(write/n), round(plainWrite/n), float64(write)/float64(plainWrite))
		figure(name+" read", "%s, a plain read %s: %.2f times", round(read/n), round(plainRead/n), float64(read)/float64(plainRead))
	},
		Entry("of 1 MiB", "file of 1 MiB", int64(1<<20), 100, SpecTimeout(5*time.Minute)),
		Entry("of 256 MiB", "file of 256 MiB", int64(256<<20), 4, SpecTimeout(10*time.Minute)),
	)
})

func writeFile(ctx context.Context, st *thread.State, source string) {
	GinkgoHelper()
	f, err := os.Open(source)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = f.Close() }()
	_, err = st.WriteFile(ctx, "/f", f, thread.WriteFileOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func drain(rc io.ReadCloser, err error) {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(struct{ io.Writer }{io.Discard}, rc)
	Expect(err).NotTo(HaveOccurred())
	Expect(rc.Close()).To(Succeed())
}
