package thread_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"gocloud.dev/blob"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

func TestThread(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "thread")
}

// env is a service over a real database and a real folder of contents.
type env struct {
	*thread.Service
	store   *sqlstore.Store
	clock   *clocktesting.FakeClock
	bucket  *blob.Bucket
	blobDir string
}

// newEnv starts a service; edit may change its options.
func newEnv(ctx context.Context, edit ...func(*thread.Options)) *env {
	GinkgoHelper()
	e := &env{clock: clocktesting.NewFakeClock(time.Now())}
	dir := scratch.Folder(GinkgoT())
	e.blobDir = filepath.Join(dir, "blobs")
	var err error
	e.store, err = sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: dir, Clock: e.clock})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(e.store.Close)
	e.bucket, err = thread.OpenBucket(ctx, "file://"+e.blobDir)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(e.bucket.Close)
	o := thread.Options{Store: e.store, Blobs: e.bucket, Clock: e.clock}
	for _, fn := range edit {
		fn(&o)
	}
	e.Service = thread.NewService(o)
	return e
}

// create creates a thread and opens it.
func (e *env) create(ctx context.Context, id string) *thread.State {
	GinkgoHelper()
	_, created, err := e.Create(ctx, thread.NewThread{Thread: store.Thread{ID: id, Namespace: "default", Name: id, Agent: "helper"}})
	Expect(err).NotTo(HaveOccurred())
	Expect(created).To(BeTrue())
	return e.open(ctx, id)
}

func (e *env) open(ctx context.Context, id string) *thread.State {
	GinkgoHelper()
	st, err := e.Open(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	return st
}

// objects lists the files of the bucket's folder.
func (e *env) objects() (names []string) {
	GinkgoHelper()
	Expect(filepath.WalkDir(e.blobDir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, e.blobDir+"/"))
		}
		return err
	})).To(Succeed())
	return names
}

func write(ctx context.Context, st *thread.State, path, data string) *thread.FileRecord {
	GinkgoHelper()
	rec, err := st.WriteFile(ctx, path, strings.NewReader(data), thread.WriteFileOptions{})
	Expect(err).NotTo(HaveOccurred())
	return rec
}

// read returns a file's contents. ok is false when the file does not exist.
func read(ctx context.Context, st *thread.State, path string) (data string, ok bool) {
	GinkgoHelper()
	rc, _, err := st.OpenFile(ctx, path)
	Expect(err).NotTo(HaveOccurred())
	if rc == nil {
		return "", false
	}
	var b bytes.Buffer
	_, err = io.Copy(&b, rc)
	Expect(err).NotTo(HaveOccurred())
	Expect(rc.Close()).To(Succeed())
	return b.String(), true
}

// beInvalid matches an *InvalidError of a field whose message contains the text.
func beInvalid(field, text string) types.GomegaMatcher {
	return WithTransform(func(err error) string {
		if !thread.IsInvalid(err) {
			return "not an InvalidError: " + err.Error()
		}
		return err.Error()
	}, And(HavePrefix(field+": "), ContainSubstring(text)))
}

func ptr[T any](v T) *T { return &v }
