package conformance

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// What `make trees` asks for.
const (
	treesEnv      = "SKEIN_TREES"       // how many threads there are
	treesStepsEnv = "SKEIN_TREES_STEPS" // how many operations the clients do on them
)

// treeSize returns how many threads the trees have, and how many operations the clients do on them. ordinary is how many threads they have
// in an ordinary run.
func treeSize(ordinary string) (threads, steps int) {
	GinkgoHelper()
	for _, one := range []struct {
		n              *int
		name, ordinary string
	}{{&threads, treesEnv, ordinary}, {&steps, treesStepsEnv, "150"}} {
		var err error
		*one.n, err = strconv.Atoi(cmp.Or(os.Getenv(one.name), one.ordinary))
		Expect(err).NotTo(HaveOccurred(), "%s: write a number", one.name)
	}
	Expect(threads).To(And(BeNumerically(">=", 10), BeNumerically("<=", 800)), "%s: write a number from 10 to 800", treesEnv)
	return threads, steps
}

// growing is what clients do while the trees grow.
var growing = []operation{{8, (*trees).say}, {6, (*trees).attach}, {3, (*trees).fork}, {2, (*trees).handOff}, {2, (*trees).rerun}, {1, (*trees).mention}}

// spread has clients work until there are as many threads as there may be: children, their children, and those that come from others.
func (w *trees) spread(ctx context.Context) {
	GinkgoHelper()
	w.ops = growing
	w.together(ctx, 100, func() bool { return !w.crowded.Load() })
	w.ops = ordinary
}

// together has six clients work at once, while next says so.
func (w *trees) together(ctx context.Context, stream uint64, next func() bool) {
	GinkgoHelper()
	var clients sync.WaitGroup
	for i := range uint64(6) {
		clients.Go(func() {
			defer GinkgoRecover()
			w.work(ctx, rand.New(rand.NewPCG(seed(), stream+i)), next)
		})
	}
	clients.Wait()
}

// kinds are the kinds of objects that a namespace of trees still has when its threads are gone: what grow declares, and what every
// namespace has.
var kinds = []string{"model.skein.dev/", "prompt.skein.dev/", "agent.skein.dev/", "tool.skein.dev/", "effect.skein.dev/", "configmap/kube-root-ca.crt", "serviceaccount/default"}

// remains returns the names of the objects of a namespace that have not gone with the threads. Events expire, clear has looked at Subagents,
// and kubectl warns of Endpoints, which are deprecated.
func remains(ctx context.Context, ns string) []string {
	GinkgoHelper()
	all, err := cluster.Kubectl(ctx, "api-resources", "--namespaced", "--verbs=list", "-o", "name")
	Expect(err).NotTo(HaveOccurred())
	resources := slices.DeleteFunc(strings.Fields(all), func(r string) bool {
		return strings.HasSuffix(r, ".runtime.skein.dev") || strings.HasPrefix(r, "events") || strings.HasPrefix(r, "subagents.") || r == "endpoints"
	})
	Expect(resources).To(ContainElements("pods", "secrets", "configmaps", "threads.skein.dev"))
	names, err := cluster.Kubectl(ctx, "-n", ns, "get", strings.Join(resources, ","), "-o", "name", "--ignore-not-found")
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(strings.Fields(names), func(name string) bool {
		return slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(name, kind) })
	})
}

// treesTimeout bounds a spec of random families. What `make trees` asks for may take longer than what `make test` has.
func treesTimeout() time.Duration {
	if os.Getenv(treesEnv) != "" {
		return 2 * time.Hour
	}
	return 30 * time.Minute
}
