package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// required declares variables that every thread needs.
type required struct {
	names []string
	fails atomic.Bool // the next look fails
}

func (r *required) Layers(context.Context, *store.Thread) (*thread.EnvLayers, error) {
	if r.fails.CompareAndSwap(true, false) {
		return nil, errors.New("the API server is away")
	}
	l := &thread.EnvLayers{}
	for _, n := range r.names {
		l.Declared = append(l.Declared, thread.EnvDeclaration{Name: n, Required: true})
	}
	return l, nil
}

var _ = Describe("Required variables", Label("ENV-06"), func() {
	var w *enginetest.World
	var layers *required
	var ring *envkeys.Keyring
	BeforeEach(func() {
		w, layers, ring = newWorld(), &required{names: []string{"A", "B"}}, &envkeys.Keyring{}
		keyset, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(keyset)).To(BeTrue())
		w.Threads.ServeEnv(thread.EnvOptions{Cipher: ring, Layers: layers})
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("now I can")))
	})
	waits := func(ctx context.Context, id, message string, queued int) {
		GinkgoHelper()
		Eventually(ctx, func(g Gomega) {
			r, err := w.Store.Run(ctx, id, "")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.Status).To(Equal(store.RunWaiting))
			g.Expect(r.Reason).To(Equal(skeinv1.ReasonEnvMissing))
			g.Expect(r.Message).To(ContainSubstring(message))
			g.Expect(w.Store.Inbox(ctx, id)).To(HaveLen(queued))
			g.Expect(w.Store.Runnable(ctx, 10)).To(BeEmpty(), "no replica need look at it")
		}).Should(Succeed())
	}
	set := func(ctx context.Context, id, name string) {
		GinkgoHelper()
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetEnv(ctx, name, "value", "")).To(Succeed())
	}

	It("keep a run parked until the last one is set, messages and restarts notwithstanding", func(ctx SpecContext) {
		_, stop := start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		waits(ctx, id, "A, B", 0)
		send(ctx, w, id, "two")
		waits(ctx, id, "A, B", 1)
		set(ctx, id, "A")
		waits(ctx, id, "values for B:", 1)
		stop()
		start(w)
		set(ctx, id, "B")
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunSucceeded), HaveField("Reason", "")))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: one", "user: two", "assistant: now I can"}))
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(1))
	})

	It("that come between the look and the parking wake the run", func(ctx SpecContext) {
		layers.names = []string{"A"}
		id := makeThread(ctx, w, "a")
		start(w, func(o *engine.Options) {
			var once sync.Once
			o.Faults = func(point string) {
				if point == "park.before" {
					once.Do(func() { set(ctx, id, "A") })
				}
			}
		})
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	})

	It("that come before a look that fails wake the run", func(ctx SpecContext) {
		layers.names = []string{"A"}
		id := makeThread(ctx, w, "a")
		start(w, func(o *engine.Options) {
			var once sync.Once
			o.Faults = func(point string) {
				if point == "park.before" {
					once.Do(func() { set(ctx, id, "A"); layers.fails.Store(true) })
				}
			}
		})
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	})

	It("fail the run with the key's id when they cannot be opened", Label("ENV-05"), func(ctx SpecContext) {
		id := makeThread(ctx, w, "a")
		set(ctx, id, "A")
		set(ctx, id, "B")
		fresh, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(fresh)).To(BeTrue())
		start(w)
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", skeinv1.ReasonEnvUnreadable), HaveField("Message", ContainSubstring("key"))))
	})
})
