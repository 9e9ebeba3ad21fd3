package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// apiWrites counts what was written, by verb and resource.
type apiWrites map[string]int

// writesOf counts what everybody has written since a time about objects whose names begin with a prefix.
func writesOf(c *harness.Cluster, ns, prefix string, since time.Time) apiWrites {
	GinkgoHelper()
	return writesWhere(c, ns, since, func(name string) bool { return strings.HasPrefix(name, prefix) })
}

// writesWhere counts what everybody has written since a time about objects with such names.
func writesWhere(c *harness.Cluster, ns string, since time.Time, counts func(name string) bool) apiWrites {
	GinkgoHelper()
	all, err := c.Writes("", ns, since)
	Expect(err).NotTo(HaveOccurred())
	out := apiWrites{}
	for _, w := range all {
		if counts(w.Name) {
			out[w.Verb+" "+w.Resource]++
		}
	}
	return out
}

// refusedWrites counts what was refused since a time to users with a prefix, with the code of the answer.
func refusedWrites(c *harness.Cluster, users, ns string, since time.Time) apiWrites {
	GinkgoHelper()
	all, err := c.RefusedWrites(users, ns, since)
	Expect(err).NotTo(HaveOccurred())
	out := apiWrites{}
	for _, w := range all {
		out[fmt.Sprintf("%s %s %d by %s", w.Verb, w.Resource, w.Code, w.User)]++
	}
	return out
}

func (w apiWrites) subtract(other apiWrites) {
	for kind, n := range other {
		w[kind] -= n
	}
}

// each prints how many there are for each of n units.
func (w apiWrites) each(n int) string {
	sum := 0
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(w)) {
		if w[kind] != 0 {
			sum += w[kind]
			parts = append(parts, fmt.Sprintf("%s %.2f", kind, float64(w[kind])/float64(n)))
		}
	}
	if sum == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f (%s)", float64(sum)/float64(n), strings.Join(parts, ", "))
}

// plainWrites makes four writes n times, one after the other, as a floor: two objects, and a change of each.
func plainWrites(ctx context.Context, c *harness.Cluster, ns string, n int) (took []time.Duration) {
	GinkgoHelper()
	for i := range n {
		took = append(took, timed(func() {
			for _, kind := range []string{"a", "b"} {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("plain-%s-%d", kind, i)}}
				Expect(c.Client.Create(ctx, o)).To(Succeed())
				Expect(c.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"v"}}`)))).To(Succeed())
			}
		}))
	}
	return took
}

// manyAtOnce does something n times, by as many clients as a controller has workers.
func manyAtOnce(n int, do func(i int)) time.Duration {
	GinkgoHelper()
	return timed(func() {
		var clients sync.WaitGroup
		for worker := range 16 {
			clients.Go(func() {
				defer GinkgoRecover()
				for i := worker; i < n; i += 16 {
					do(i)
				}
			})
		}
		clients.Wait()
	})
}

// shown waits until the statuses of n Threads are as is says, and returns when each was, by name. It takes every event as it comes: polling
// would round what is measured.
func shown(ctx context.Context, c *harness.Cluster, n int, is func(*skeinv1.ThreadStatus) bool, which ...client.ListOption) (names map[string]time.Time) {
	GinkgoHelper()
	names = map[string]time.Time{}
	for len(names) < n { // the API server ends watches that fall behind; each begins with what there is
		w, err := c.Client.Watch(ctx, &skeinv1.ThreadList{}, which...)
		Expect(err).NotTo(HaveOccurred())
		for e := range w.ResultChan() {
			if t, ok := e.Object.(*skeinv1.Thread); ok && names[t.Name].IsZero() && is(&t.Status) {
				names[t.Name] = time.Now()
			}
			if len(names) == n {
				break
			}
		}
		w.Stop()
	}
	return names
}
