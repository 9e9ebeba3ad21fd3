package conformance

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The policy of config/mutation", Label("K8S-07"), func() {
	var ns string
	// The policy as it is shipped, for one namespace.
	BeforeEach(func(ctx SpecContext) {
		ns = namespace(ctx)
		b, err := os.ReadFile(filepath.Join(harness.Root(), "config", "mutation", "finalizers.yaml"))
		Expect(err).NotTo(HaveOccurred())
		for _, doc := range strings.Split(string(b), "\n---\n") {
			o := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(doc), o)).To(Succeed())
			o.SetName("skein-" + ns)
			if o.GetKind() == "MutatingAdmissionPolicyBinding" {
				Expect(unstructured.SetNestedField(o.Object, o.GetName(), "spec", "policyName")).To(Succeed())
				Expect(unstructured.SetNestedStringMap(o.Object, map[string]string{"kubernetes.io/metadata.name": ns}, "spec", "matchResources", "namespaceSelector", "matchLabels")).To(Succeed())
			}
			Expect(cluster.Client.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(cluster.Client.Delete(ctx, o)).To(Succeed()) })
		}
		Eventually(ctx, func() ([]string, error) {
			t := harness.NewThread(ns, "probe", "agent")
			err := cluster.Client.Create(ctx, t, client.DryRunAll)
			return t.Finalizers, err
		}).Should(ConsistOf(skeinv1.Finalizer), "the API server has the policy")
	})

	// writes returns what is written of a Thread from what do does until it is as ok says. A Thread that is there comes first.
	writes := func(ctx SpecContext, t *skeinv1.Thread, do func(), ok func(watch.EventType, *skeinv1.Thread) bool) (all []watch.EventType) {
		GinkgoHelper()
		w, err := cluster.Client.Watch(ctx, &skeinv1.ThreadList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": t.Name})
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		do()
		for {
			var e watch.Event
			Eventually(ctx, w.ResultChan()).Should(Receive(&e))
			all = append(all, e.Type)
			if now, is := e.Object.(*skeinv1.Thread); is && ok(e.Type, now) {
				return all
			}
		}
	}

	It("makes a Thread without a message cost two writes, and its deletion two", func(ctx SpecContext) {
		converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()}) // the agent is ready
		idle := harness.NewThread(ns, "idle", "agent")
		Expect(writes(ctx, idle, func() { create(ctx, idle) }, func(_ watch.EventType, t *skeinv1.Thread) bool {
			return meta.IsStatusConditionTrue(t.Status.Conditions, skeinv1.ConditionReady)
		})).To(Equal([]watch.EventType{watch.Added, watch.Modified}), "it is created, and has its status")
		Expect(idle.Finalizers).To(ConsistOf(skeinv1.Finalizer))

		Expect(writes(ctx, idle, func() { Expect(cluster.Client.Delete(ctx, idle)).To(Succeed()) }, func(what watch.EventType, _ *skeinv1.Thread) bool {
			return what == watch.Deleted
		})).To(Equal([]watch.EventType{watch.Added, watch.Modified, watch.Deleted}), "it is there, is being deleted, and loses its finalizer")
		Expect(api().Lookup(ctx, string(idle.UID))).Error().To(Satisfy(apierrors.IsNotFound), "its data is purged")
	})

	It("keeps finalizers of others, and leaves Threads with spec.threadID to the manager", func(ctx SpecContext) {
		other := harness.NewThread(ns, "other", "agent")
		other.Finalizers = []string{"example.com/keep"}
		Expect(cluster.Client.Create(ctx, other, client.DryRunAll)).To(Succeed())
		Expect(other.Finalizers).To(Equal([]string{"example.com/keep", skeinv1.Finalizer}))
		own := harness.NewThread(ns, "own", "agent")
		own.Finalizers = []string{skeinv1.Finalizer}
		Expect(cluster.Client.Create(ctx, own, client.DryRunAll)).To(Succeed())
		Expect(own.Finalizers).To(Equal([]string{skeinv1.Finalizer}))
		named := harness.NewThread(ns, "named", "agent")
		named.Spec.ThreadID = "2c639155-af2f-4ede-84dd-ec828b6674fa"
		Expect(cluster.Client.Create(ctx, named, client.DryRunAll)).To(Succeed())
		Expect(named.Finalizers).To(BeEmpty())
	})
})
