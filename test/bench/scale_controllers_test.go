package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/notifications"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

// What waits in the workqueues of controllers before something else, with more objects. The queues and the sources are those of the manager,
// and the workers are the bench.
var _ = Describe("Scale of the controllers", Label("scale"), func() {
	It("handles a new Thread after a reconnection to the database", func(ctx SpecContext) {
		place := func(n int) (place int, took time.Duration) {
			q := newQueue(fmt.Sprint("scale-reconnection-", n))
			database := &told{}
			source := notifications.NewSource(database, store.ChangedThread)
			Expect(source.Start(ctx, q)).To(Succeed())
			for i := range n {
				source.Track(threadID("tracked", i), request("tracked", i))
			}
			took = timed(func() { database.fn(store.Notification{Changed: store.ChangedThread, Remote: true}) })
			return placeOf(q, request("new", 0)), took
		}
		var first [2]int
		var took [2][]time.Duration
		for round := range 5 {
			for i, n := range []int{1_000, 10_000} {
				p, d := place(n)
				took[i] = append(took[i], d)
				if round == 0 {
					first[i] = p
				}
			}
		}
		figure("a new Thread after LISTEN reconnects", "is number %s in the queue with 1,000, %s with 10,000: %.2f times (goal 1.2, number 1); the reconnection itself takes %s and %s, a request of each",
			thousands(first[0]), thousands(first[1]), float64(first[1])/float64(first[0]), short(quantile(took[0], .5)), short(quantile(took[1], .5)))
	}, NodeTimeout(2*time.Minute))

	It("handles a new Thread after an Agent has become ready", func(ctx SpecContext) {
		var took [2][]time.Duration
		var first [2]int
		for round := range 5 {
			for i, n := range []int{1_000, 10_000} {
				q := newQueue(fmt.Sprint("scale-flap-", n))
				threads := &listed{}
				for k := range n {
					threads.items = append(threads.items, skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: request("of-agent", k).Name}})
				}
				handler := watches.Dependents(watches.ByIndex(threads, func() client.ObjectList { return &skeinv1.ThreadList{} }, objects.IndexAgent))
				before, after := agentOf(metav1.ConditionFalse), agentOf(metav1.ConditionTrue)
				e := ctrlevent.UpdateEvent{ObjectOld: before, ObjectNew: after}
				Expect(watches.ReadyTurned().Update(e)).To(BeTrue())
				took[i] = append(took[i], timed(func() { handler.Update(ctx, e, q) }))
				p := placeOf(q, request("new", 0))
				if round == 0 {
					first[i] = p
				}
			}
		}
		figure("a new Thread after an Agent became ready", "is number %s in the queue with 1,000, %s with 10,000: %.2f times (goal 1.2); Threads of the Agent; to find them takes %s and %s",
			thousands(first[0]), thousands(first[1]), float64(first[1])/float64(first[0]), short(quantile(took[0], .5)), short(quantile(took[1], .5)))
	}, NodeTimeout(2*time.Minute))

	It("reconciles the effect whose firing has ended", func(ctx SpecContext) {
		var caused [2]int
		for i, n := range []int{100, 1_000} {
			s := openSQLite(ctx)
			d := newThread(ctx, s, "one")
			for k := range n {
				effect := fmt.Sprint("effect-", k)
				f := store.Firing{EffectID: effect, Due: 1, ThreadID: d, Namespace: "bench", Name: effect, Effect: "e"}
				Expect(s.RecordFiring(ctx, f)).To(BeTrue())
			}
			q := newQueue(fmt.Sprint("scale-firings-", n))
			source := notifications.NewEffectSource(s)
			Expect(source.Start(ctx, q)).To(Succeed())
			for k := range n {
				source.Track(fmt.Sprint("effect-", k), request("effect", k))
			}
			finish(ctx, s, map[string]int{"bench": 1}, "effect-0")
			Eventually(ctx, q.Len).Should(BeNumerically(">", 0))
			source.Begin(request("effect", 0)) // waits until the notification is handled
			caused[i] = placeOf(q, request("last", 0)) - 1
		}
		figure("reconciles after a firing has ended", "%d with 100, %d with 1,000: %.2f times (goal 1.2); firings of one thread", caused[0], caused[1], float64(caused[1])/float64(caused[0]))
	}, NodeTimeout(2*time.Minute))

	It("caches metadata of Secrets and ConfigMaps", func() {
		const few, many = 1_000, 10_000
		of := func(n int, applied string) float64 {
			before, _ := inUse()
			kept := cached(n, applied)
			after, _ := inUse()
			Expect(kept.List()).To(HaveLen(n))
			runtime.KeepAlive(kept)
			return float64(after-before) / float64(n)
		}
		of(few, "") // what is made once
		a, b := of(few, ""), of(many, "")
		figure("cached metadata of a Secret or ConfigMap", "%.0f bytes with 1,000, %.0f with 10,000: %.2f times (goal 1.2); in this process; the label idle has Threads in the manager", a, b, b/a)
		c := of(few, strings.Repeat("x", 8<<10))
		figure("  applied with kubectl, of 8 KiB", "%.0f bytes: the cache leaves out the annotation of kubectl apply (goal: as without)", c)
	})
})

// newQueue returns the workqueue of a controller of Threads.
func newQueue(name string) workqueue.TypedRateLimitingInterface[ctrl.Request] {
	o := watches.Options(16)
	q := o.NewQueue(name, o.RateLimiter)
	DeferCleanup(q.ShutDown)
	return q
}

func request(prefix string, i int) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "bench", Name: threadID(prefix, i)}}
}

// placeOf adds a request as the creation of an object does, and returns its place among those that workers get.
func placeOf(q workqueue.TypedRateLimitingInterface[ctrl.Request], wanted ctrl.Request) int {
	GinkgoHelper()
	q.Add(wanted)
	for place := 1; ; place++ {
		r, shutdown := q.Get()
		Expect(shutdown).To(BeFalse())
		q.Done(r)
		if r == wanted {
			return place
		}
	}
}

// told is a subscriber whose notifications the bench makes.
type told struct{ fn func(store.Notification) }

func (t *told) Subscribe(fn func(store.Notification)) func() {
	t.fn = fn
	return func() {}
}

// listed is a cache that finds all its Threads.
type listed struct {
	client.Reader
	items []skeinv1.Thread
}

func (l *listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*skeinv1.ThreadList).Items = append([]skeinv1.Thread{}, l.items...)
	return nil
}

// agentOf returns an agent with this status of its Ready condition.
func agentOf(ready metav1.ConditionStatus) *skeinv1.Agent {
	a := &skeinv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: "a", ResourceVersion: string(ready)}}
	a.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: ready}}
	return a
}

// cached returns n objects as the manager's cache keeps those of which it has the metadata only.
func cached(n int, applied string) toolscache.Indexer {
	GinkgoHelper()
	kept := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	for i := range n {
		annotations := map[string]string{}
		if applied != "" {
			annotations["kubectl.kubernetes.io/last-applied-configuration"] = applied
		}
		data, err := json.Marshal(metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: fmt.Sprint("namespace-", i%100), Name: fmt.Sprint("secret-of-some-application-", i), UID: "0f5c5a2e-7c39-4f0c-8f0e-4b6f1f8f6a10", ResourceVersion: fmt.Sprint(i),
				CreationTimestamp: metav1.Now(), Labels: map[string]string{"app.kubernetes.io/name": "application", "app.kubernetes.io/managed-by": "Helm"}, Annotations: annotations,
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "helm", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{".":{},"f:password":{},"f:user":{}},"f:type":{}}`)}},
			},
		})
		Expect(err).NotTo(HaveOccurred())
		o := &metav1.PartialObjectMetadata{}
		Expect(json.Unmarshal(data, o)).To(Succeed())
		stripped, err := objects.Cached(o)
		Expect(err).NotTo(HaveOccurred())
		Expect(kept.Add(stripped)).To(Succeed())
	}
	return kept
}
