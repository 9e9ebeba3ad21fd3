package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namesakes reads namespaces as an API server does that takes a second for each answer. A namespace has the UID that it had when the read began.
type namesakes struct {
	client.Reader
	mu    sync.Mutex
	reads int
	uid   string
	fails error
	panic bool
}

func (n *namesakes) Get(ctx context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	n.mu.Lock()
	n.reads++
	uid, fails, panics := n.uid, n.fails, n.panic
	n.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	if panics {
		panic("a reader's mistake")
	}
	o.SetUID(types.UID(uid))
	return fails
}

func (n *namesakes) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func TestCallersShareAReadThatBeginsAfterTheyAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		live := &namesakes{uid: "first"}
		n := NewNamespaces(live)
		var all sync.WaitGroup
		ask := func(want string) {
			all.Go(func() { g.Expect(n.UID(t.Context(), "team")).To(Equal(want)) })
			synctest.Wait()
		}
		ask("first")
		live.set(func() { live.uid = "second" }) // while that read is under way
		for range 19 {
			ask("second")
		}
		all.Go(func() { g.Expect(n.UID(t.Context(), "other")).To(Equal("second")) })
		all.Wait()
		g.Expect(live.reads).To(Equal(3), "one under way, one for all who asked meanwhile, and that of the other namespace")
		g.Expect(n.UID(t.Context(), "team")).To(Equal("second"))
		g.Expect(live.reads).To(Equal(4))
		g.Expect(n.under).To(BeEmpty())
		g.Expect(n.next).To(BeEmpty())
	})
}

func TestACallerWhoseReadFailsDoesNotFailOthers(t *testing.T) {
	for name, spoil := range map[string]func(*namesakes, context.CancelFunc){
		"its context ends":            func(_ *namesakes, cancel context.CancelFunc) { cancel() },
		"the API server says no once": func(n *namesakes, _ context.CancelFunc) { n.fails = errors.New("unavailable") },
		"the reader panics once":      func(n *namesakes, _ context.CancelFunc) { n.panic = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				live := &namesakes{uid: "u"}
				n := NewNamespaces(live)
				var all sync.WaitGroup
				all.Go(func() { g.Expect(n.UID(t.Context(), "team")).To(Equal("u")) })
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				all.Go(func() { // whose read the next ones share
					defer func() { _ = recover() }()
					_, err := n.UID(ctx, "team")
					g.Expect(err).To(HaveOccurred())
				})
				synctest.Wait()
				for i := range 3 {
					all.Go(func() { g.Expect(n.UID(t.Context(), "team")).To(Equal("u"), fmt.Sprint(i)) })
				}
				synctest.Wait()
				live.set(func() { spoil(live, cancel) })
				time.Sleep(1500 * time.Millisecond) // by the fake clock of synctest: the second read has begun by then, unless its caller has given up
				live.set(func() { live.fails, live.panic = nil, false })
				all.Wait()
				g.Expect(n.UID(t.Context(), "team")).To(Equal("u"))
				g.Expect(n.under).To(BeEmpty())
				g.Expect(n.next).To(BeEmpty())
			})
		})
	}
}

func TestACallerThatWaitsForAReadStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		n := NewNamespaces(&namesakes{})
		var all sync.WaitGroup
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*300*time.Millisecond)
			defer cancel()
			all.Go(func() {
				_, err := n.UID(ctx, "team")
				g.Expect(err).To(MatchError(context.DeadlineExceeded))
			})
			synctest.Wait()
		}
		all.Wait()
		g.Expect(n.under).To(BeEmpty())
		g.Expect(n.next).To(BeEmpty())
	})
}
