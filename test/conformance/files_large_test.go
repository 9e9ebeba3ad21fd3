package conformance

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/thread/s3test"
	"github.com/skein-dev/skein/test/harness"
)

// pngSum is the checksum of a chunk of a PNG.
func pngSum(chunk []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(chunk))
}

// direct is a client that goes straight to the manager, as a service account of the namespace that may do anything there.
func direct(ctx context.Context, m *harness.Manager, ns string) *runtimeclient.Client {
	GinkgoHelper()
	token, err := cluster.Token(ctx, ns, "app")
	Expect(err).NotTo(HaveOccurred())
	c, err := cluster.Direct(ctx, m, token)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// residentPeak is the most memory, in bytes, that a process has had resident at once since it started.
func residentPeak(pid int) int64 {
	GinkgoHelper()
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if kib, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kib), " kB"), 10, 64)
			Expect(err).NotTo(HaveOccurred())
			return n << 10
		}
	}
	Fail("the process does not say how much memory it has")
	return 0
}

// noise is random bytes, with their sum.
type noise struct {
	io.Reader
	sum hash.Hash
}

func newNoise(size int64, seed byte) *noise {
	sum := sha256.New()
	return &noise{io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{seed}), size), sum), sum}
}

var _ = Describe("A file of a gibibyte", Serial, outages, func() {
	const size = 1 << 30
	const bound = 200 << 20

	It("streams both ways in bounded memory, straight and through the Kubernetes API", Label("FIL-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		fresh := instead(ctx, harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Args: []string{"--namespaces=" + ns}})
		th := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		straight := direct(ctx, fresh, ns).Thread(ns, th.Name)
		for i, way := range []struct {
			name string
			t    *runtimeclient.Thread
		}{{"straight", straight}, {"through the Kubernetes API", conversation(th)}} {
			By(way.name)
			source := newNoise(size, byte(i))
			start := time.Now()
			rec, err := way.t.WriteFile(ctx, fmt.Sprint("/large-", i), source, runtimeclient.WriteFileOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(rec.Size).To(Equal(int64(size)))
			written := time.Since(start)
			stream, err := way.t.ReadFileStream(ctx, rec.Path)
			Expect(err).NotTo(HaveOccurred())
			sum := sha256.New()
			next := int64(0)
			for c, err := range stream {
				Expect(err).NotTo(HaveOccurred())
				if c.Index != next || c.TotalChunks != rec.ChunkCount {
					Fail(fmt.Sprintf("chunk %d of %d came as number %d of %d", next, rec.ChunkCount, c.Index, c.TotalChunks))
				}
				next++
				_, _ = sum.Write(c.Data)
			}
			Expect(next).To(Equal(rec.ChunkCount))
			Expect(sum.Sum(nil)).To(Equal(source.sum.Sum(nil)))
			peak := residentPeak(fresh.PID())
			AddReportEntry(fmt.Sprintf("%s: written in %s, read in %s, resident at most %d MiB", way.name, written.Round(time.Second), (time.Since(start) - written).Round(time.Second), peak>>20))
			Expect(peak).To(BeNumerically("<", bound), way.name)
			Expect(way.t.Unlink(ctx, rec.Path)).To(Succeed())
		}
	}, SpecTimeout(20*time.Minute))
})

var _ = Describe("The disk of file contents", Serial, outages, func() {
	It("may be full: nothing is stored by halves, and it is over without a restart", Label("FIL-01", "THR-18"), func(ctx SpecContext) {
		ns := namespace(ctx)
		dir := GinkgoT().TempDir()
		blobs := filepath.Join(dir, "blobs")
		Expect(os.Mkdir(blobs, 0o700)).To(Succeed())
		small := instead(ctx, harness.ManagerOptions{
			Dir: filepath.Join(dir, "data"), Args: []string{"--namespaces=" + ns, "--blob-url=file://" + blobs}, Within: onSmallDisk(blobs, "32m"),
		})
		pid := small.PID()
		disk := filepath.Join("/proc", fmt.Sprint(pid), "root", blobs)
		t := conversation(converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()}))
		put(ctx, t, "/kept", strings.Repeat("k", 1<<20))
		filler := fill(disk)
		Expect(os.Truncate(filler, 27<<20)).To(Succeed()) // room for some of what comes
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				defer GinkgoRecover()
				_, err := t.WriteFile(ctx, fmt.Sprint("/much-", i), newNoise(8<<20, byte(i)), runtimeclient.WriteFileOptions{})
				Expect(err).To(MatchError(runtimeclient.ErrUnavailable))
				Expect(err).To(MatchError(ContainSubstring("disk of file contents is full")))
			})
		}
		wg.Wait()
		Expect(got(ctx, t, "/kept")).To(HaveLen(1 << 20))
		Expect(t.FindFiles(ctx, "**", 0)).To(HaveField("Paths", []string{"/kept"}))
		Eventually(ctx, func() (left []string, err error) {
			err = filepath.WalkDir(disk, func(path string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() && path != filler {
					left = append(left, path)
				}
				return err
			})
			return left, err
		}).Should(HaveLen(1), "what was begun is removed")
		Expect(t.Send(ctx, "are you well?")).Error().NotTo(HaveOccurred(), "the conversation goes on")

		Expect(os.Remove(filler)).To(Succeed())
		put(ctx, t, "/much", strings.Repeat("m", 8<<20))
		Expect(got(ctx, t, "/much")).To(HaveLen(8 << 20))
		Expect(small.PID()).To(Equal(pid))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("Contents of files in an S3 bucket", Serial, outages, func() {
	It("are written, read, copied and removed as in a folder", Label("FIL-01", "FIL-03"), func(ctx SpecContext) {
		s3, err := s3test.Start(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s3.Stop)
		url, err := s3.NewBucket()
		Expect(err).NotTo(HaveOccurred())
		var env []string
		for name, value := range s3.Env() {
			env = append(env, name+"="+value)
		}
		ns := namespace(ctx)
		dir := filepath.Join(GinkgoT().TempDir(), "data")
		instead(ctx, harness.ManagerOptions{Dir: dir, Args: []string{"--namespaces=" + ns, "--blob-url=" + url}, Env: env})
		t := conversation(converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()}))
		put(ctx, t, "/small", "a few bytes")
		source := newNoise(40<<20, 1)
		_, err = t.WriteFile(ctx, "/large", source, runtimeclient.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(got(ctx, t, "/small")).To(Equal("a few bytes"))
		back := sha256.Sum256([]byte(got(ctx, t, "/large")))
		Expect(back[:]).To(Equal(source.sum.Sum(nil)))
		Expect(filepath.Join(dir, "blobs")).NotTo(BeADirectory(), "nothing is kept beside the bucket")
		Expect(t.Unlink(ctx, "/large")).To(Succeed())
		Expect(t.StatFile(ctx, "/large")).To(BeNil())
	}, SpecTimeout(20*time.Minute))
})
