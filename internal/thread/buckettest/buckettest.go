// Package buckettest is the suite for the contents of files that every kind of bucket must pass. Call DescribeBucket
// from a Ginkgo suite.
package buckettest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gocloud.dev/blob"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Backend is an empty store and an empty bucket.
type Backend interface {
	// Open opens the store. Each call returns another replica, for stores that can have several.
	Open(ctx context.Context, c clock.PassiveClock) (store.Store, error)
	// Replicas returns how many replicas the store can have.
	Replicas() int
	// BucketURL returns the URL of the bucket.
	BucketURL() string
}

// env is a set of replicas over one bucket.
type env struct {
	clock    *clocktesting.FakeClock
	replicas []*thread.Service
	bucket   *blob.Bucket
}

func (e *env) start(ctx context.Context, b Backend) {
	GinkgoHelper()
	e.clock, e.replicas = clocktesting.NewFakeClock(time.Now()), nil
	for range b.Replicas() {
		st, err := b.Open(ctx, e.clock)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(st.Close)
		bucket, err := thread.OpenBucket(ctx, b.BucketURL())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(bucket.Close)
		e.bucket = bucket
		e.replicas = append(e.replicas, thread.NewService(thread.Options{Store: st, Blobs: bucket, Clock: e.clock}))
	}
}

func (e *env) create(ctx context.Context, id string) *thread.State {
	GinkgoHelper()
	_, _, err := e.replicas[0].Create(ctx, thread.NewThread{Thread: store.Thread{ID: id, Namespace: "default", Name: id, Agent: "helper"}})
	Expect(err).NotTo(HaveOccurred())
	return e.open(ctx, 0, id)
}

func (e *env) open(ctx context.Context, replica int, id string) *thread.State {
	GinkgoHelper()
	st, err := e.replicas[replica%len(e.replicas)].Open(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	return st
}

func (e *env) objects(ctx context.Context) (keys []string) {
	GinkgoHelper()
	for list := e.bucket.List(nil); ; {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return keys
		}
		Expect(err).NotTo(HaveOccurred())
		keys = append(keys, o.Key)
	}
}

func write(ctx context.Context, st *thread.State, path, data string) *thread.FileRecord {
	GinkgoHelper()
	rec, err := st.WriteFile(ctx, path, strings.NewReader(data), thread.WriteFileOptions{})
	Expect(err).NotTo(HaveOccurred())
	return rec
}

func read(ctx context.Context, st *thread.State, path string) string {
	GinkgoHelper()
	rc, _, err := st.OpenFile(ctx, path)
	Expect(err).NotTo(HaveOccurred())
	Expect(rc).NotTo(BeNil(), path)
	defer func() { _ = rc.Close() }()
	data, err := io.ReadAll(rc)
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}

// DescribeBucket adds the suite for one kind of bucket; newBackend is called for each spec.
func DescribeBucket(name string, newBackend func(ctx context.Context) Backend) bool {
	return Describe("contents of files in "+name, Label("FIL-01", "FIL-03", "FIL-07"), func() {
		e := &env{}
		BeforeEach(func(ctx SpecContext) { e.start(ctx, newBackend(ctx)) })

		DescribeTable("are read back as they were written", func(ctx SpecContext, size int64) {
			st := e.create(ctx, "t")
			sum := sha256.New()
			rec, err := st.WriteFile(ctx, "/f", io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{}), size), sum), thread.WriteFileOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(rec.Size).To(Equal(size))
			rc, _, err := st.OpenFile(ctx, "/f")
			Expect(err).NotTo(HaveOccurred())
			defer func() { _ = rc.Close() }()
			back := sha256.New()
			Expect(io.Copy(back, rc)).To(Equal(size))
			Expect(back.Sum(nil)).To(Equal(sum.Sum(nil)))
			Expect(e.objects(ctx)).To(HaveLen(1))
		},
			Entry("when empty", int64(0)), Entry("when small", int64(1000)),
			Entry("at the largest size that is kept in memory", int64(256<<10)), Entry("above it", int64(256<<10+1)), Entry("when large", int64(20<<20+7)),
		)

		It("can be read from an offset", func(ctx SpecContext) {
			st := e.create(ctx, "t")
			write(ctx, st, "/f", "0123456789")
			rc, _, err := st.OpenFile(ctx, "/f")
			Expect(err).NotTo(HaveOccurred())
			defer func() { _ = rc.Close() }()
			Expect(rc.(io.Seeker).Seek(6, io.SeekStart)).To(Equal(int64(6)))
			Expect(io.ReadAll(rc)).To(Equal([]byte("6789")))
		})

		It("are one object for all files that have them, until the last one is removed", func(ctx SpecContext) {
			one, two := e.create(ctx, "one"), e.create(ctx, "two")
			for _, data := range []string{"small", strings.Repeat("large", 1<<20)} {
				write(ctx, one, "/a", data)
				write(ctx, two, "/b", data)
				Expect(two.CopyFilesFrom(ctx, one, []string{"/a"})).To(HaveLen(1))
				Expect(e.objects(ctx)).To(HaveLen(1))
				Expect(one.Unlink(ctx, "/a")).To(Succeed())
				Expect(two.Unlink(ctx, "/b")).To(Succeed())
				Expect(read(ctx, two, "/attachments/a")).To(Equal(data))
				Expect(two.Unlink(ctx, "/attachments/a")).To(Succeed())
				Expect(e.objects(ctx)).To(BeEmpty())
			}
		})

		It("arrive in parts", func(ctx SpecContext) {
			st := e.create(ctx, "t")
			u, err := st.Upload("/f", "upload-1")
			Expect(err).NotTo(HaveOccurred())
			for n, part := range []string{"one ", "wrong", "three"} {
				Expect(u.Put(ctx, n, strings.NewReader(part))).To(Equal(int64(len(part))))
			}
			Expect(u.Put(ctx, 1, strings.NewReader("two "))).To(Equal(int64(4)))
			_, err = u.Complete(ctx, 4, thread.WriteFileOptions{})
			Expect(err).To(MatchError(ContainSubstring("part 3")))
			rec, err := u.Complete(ctx, 3, thread.WriteFileOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(rec.Size).To(Equal(int64(13)))
			Expect(read(ctx, st, "/f")).To(Equal("one two three"))
			Expect(e.objects(ctx)).To(HaveLen(1), "the parts are gone")
		})

		It("are swept after a crash, wherever it happened", func(ctx SpecContext) {
			st := e.create(ctx, "t")
			write(ctx, st, "/kept", "kept")
			By("crashing between the bytes and their row")
			Expect(e.bucket.WriteAll(ctx, "blobs/ab/abandoned", []byte("x"), nil)).To(Succeed())
			By("crashing between the row's end and the bytes'")
			write(ctx, st, "/gone", "gone")
			Expect(st.Apply(ctx, &store.RemoveFile{Path: "/gone"})).To(Succeed())
			By("crashing in the middle of an upload")
			u, err := st.Upload("/f", "upload-1")
			Expect(err).NotTo(HaveOccurred())
			Expect(u.Put(ctx, 0, strings.NewReader("part"))).Error().NotTo(HaveOccurred())
			Expect(e.objects(ctx)).To(HaveLen(4))

			sweep := func(replica int) int {
				GinkgoHelper()
				n, err := e.replicas[replica%len(e.replicas)].Sweep(ctx)
				Expect(err).NotTo(HaveOccurred())
				return n
			}
			Expect(sweep(0)).To(BeZero())
			e.clock.Step(23 * time.Hour)
			Expect(sweep(1)).To(BeZero(), "they may still be written")
			e.clock.Step(2 * time.Hour)
			Expect(sweep(1)).To(Equal(3))
			Expect(e.objects(ctx)).To(HaveLen(1))
			Expect(read(ctx, st, "/kept")).To(Equal("kept"))
		})

		It("that are missing are restored by the next write of them", func(ctx SpecContext) {
			st := e.create(ctx, "t")
			for _, data := range []string{"small", strings.Repeat("large", 1<<20)} {
				write(ctx, st, "/f", data)
				for _, o := range e.objects(ctx) {
					Expect(e.bucket.Delete(ctx, o)).To(Succeed())
				}
				_, _, err := st.OpenFile(ctx, "/f")
				Expect(err).To(MatchError(ContainSubstring("not in the bucket")))
				write(ctx, st, "/again", data)
				Expect(read(ctx, st, "/f")).To(Equal(data))
				Expect(e.objects(ctx)).To(HaveLen(1))
				Expect(st.Unlink(ctx, "/f")).To(Succeed())
				Expect(st.Unlink(ctx, "/again")).To(Succeed())
			}
		})

		It("are never missing while a file has them, under concurrent writes, copies, removals and sweeps", func(ctx SpecContext) {
			const workers, rounds = 6, 25
			large := strings.Repeat("large", 60_000)
			var ids []string
			for i := range workers {
				ids = append(ids, fmt.Sprint("t", i))
				e.create(ctx, ids[i])
			}
			done := make(chan struct{})
			var sweeps sync.WaitGroup
			sweeps.Go(func() {
				defer GinkgoRecover()
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					// Step the clock as if each sweep came a day after the last, so that everything that it recorded is
					// old.
					_, err := e.replicas[i%len(e.replicas)].Sweep(ctx)
					Expect(err).NotTo(HaveOccurred())
					e.clock.Step(25 * time.Hour)
				}
			})
			var wg sync.WaitGroup
			for i := range workers {
				wg.Go(func() {
					defer GinkgoRecover()
					st := e.open(ctx, i, ids[i])
					random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), uint64(i)))
					for range rounds {
						data := []string{"one", "two", large}[random.IntN(3)] // few values, so that the workers compete for the same contents
						_, err := st.WriteFile(ctx, "/f", strings.NewReader(data), thread.WriteFileOptions{})
						if errors.Is(err, store.ErrUnavailable) {
							continue // a day passed between its upload and its row, so it was refused
						}
						Expect(err).NotTo(HaveOccurred())
						Expect(read(ctx, st, "/f")).To(Equal(data))
						from := e.open(ctx, i, ids[random.IntN(workers)])
						given, err := st.CopyFilesFrom(ctx, from, []string{"/f"})
						if err == nil {
							Expect([]string{"one", "two", large}).To(ContainElement(read(ctx, st, given[0].Path)))
							Expect(st.Unlink(ctx, given[0].Path)).To(Succeed())
						} else {
							Expect(thread.IsInvalid(err) || errors.Is(err, store.ErrNoContents)).To(BeTrue(), err.Error())
						}
						if random.IntN(2) == 0 {
							Expect(st.Unlink(ctx, "/f")).To(Or(Succeed(), MatchError(store.ErrNotFound)))
						}
					}
				})
			}
			wg.Wait()
			close(done)
			sweeps.Wait()
			for i, id := range ids {
				st := e.open(ctx, i, id)
				if rec, err := st.StatFile(ctx, "/f"); err == nil && rec != nil {
					read(ctx, st, "/f")
				}
				Expect(e.replicas[0].Purge(ctx, id)).To(Succeed())
			}
			for range 2 { // refused contents are garbage
				_, err := e.replicas[0].Sweep(ctx)
				Expect(err).NotTo(HaveOccurred())
				e.clock.Step(25 * time.Hour)
			}
			Expect(e.objects(ctx)).To(BeEmpty())
		}, SpecTimeout(3*time.Minute))
	})
}
