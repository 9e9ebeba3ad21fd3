package engine_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// TestMain is also the supervisor and the child of the sandboxes that the tests run.
func TestMain(m *testing.M) {
	sandboxtest.Main()
	os.Exit(m.Run())
}

const (
	// patience is how long a spec waits for what is to come: long, since a machine may be busy with other things. What does
	// not come is found out late, what does at once.
	patience = 2 * time.Minute
	// manyPlays is for a spec that plays something again and again.
	manyPlays = 20 * time.Minute
)

func TestEngine(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Engine")
}

// newWorld makes a world that goes away with the test.
func newWorld() *enginetest.World {
	w, err := enginetest.New(scratch.Folder(GinkgoT()))
	Expect(err).NotTo(HaveOccurred())
	w.Logger = GinkgoLogr
	DeferCleanup(func() { Expect(w.Close()).To(Succeed()) })
	return w
}

// start runs an engine until the test ends, or stop is called.
func start(w *enginetest.World, change ...func(*engine.Options)) (e *engine.Engine, stop func()) {
	o := w.Options()
	for _, c := range change {
		c(&o)
	}
	e, err := engine.New(o)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		Eventually(done).Should(Receive(BeNil()))
	})
	DeferCleanup(stop)
	return e, stop
}

// makeThread makes a thread of an agent.
func makeThread(ctx context.Context, w *enginetest.World, agent string, change ...func(*thread.NewThread)) string {
	GinkgoHelper()
	id, err := w.Thread(ctx, agent, change...)
	Expect(err).NotTo(HaveOccurred())
	return id
}

func send(ctx context.Context, w *enginetest.World, id, text string) {
	GinkgoHelper()
	Expect(w.Send(ctx, id, text)).To(Succeed())
}

// rest waits until a thread has nothing to do and gives its last run.
func rest(ctx context.Context, w *enginetest.World, id string) store.Run {
	GinkgoHelper()
	Eventually(w.Resting).WithContext(ctx).WithArguments(id).Should(BeTrue())
	return lastRun(ctx, w, id)
}

func lastRun(ctx context.Context, w *enginetest.World, id string) store.Run {
	GinkgoHelper()
	r, err := w.Store.Run(ctx, id, "")
	Expect(err).NotTo(HaveOccurred())
	return *r
}

// told gives "role: content" of each message, tool results with their tool and status.
func told(ctx context.Context, w *enginetest.World, id string) []string {
	GinkgoHelper()
	msgs, err := w.Messages(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	var out []string
	for _, m := range msgs {
		text := string(m.Role)
		if m.Role == store.RoleTool {
			text += " " + m.Name + " " + m.ToolStatus
		}
		for _, c := range m.ToolCalls {
			text += " ->" + c.Name
		}
		if m.Content != nil {
			text += ": " + *m.Content
		}
		out = append(out, text)
	}
	return out
}
