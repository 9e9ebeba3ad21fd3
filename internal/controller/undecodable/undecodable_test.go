// Package undecodable tests how controllers treat objects that got past admission and cannot be decoded, with a real
// API server: what it refuses to write decides about them.
package undecodable

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

// patience bounds what must happen, with room for busy machines. No spec measures it.
const patience = 2 * time.Minute

func TestUndecodable(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Objects that cannot be decoded")
}

var api client.Client

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(patience)
	klog.SetLogger(GinkgoLogr)
	log.SetLogger(GinkgoLogr)
	Expect(os.Getenv("KUBEBUILDER_ASSETS")).NotTo(BeEmpty(), "this suite needs a control plane: run `make test-integration`")
	control := &envtest.Environment{CRDDirectoryPaths: []string{"../../../config/crd/bases"}, ErrorIfCRDPathMissing: true}
	cfg, err := control.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(control.Stop)
	scheme := controllertest.Scheme()
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	api, err = client.New(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
})

// threadOf returns a Thread of a spec, which the types need not be able to hold.
func threadOf(name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte("spec: "+spec), &u.Object)).To(Succeed())
	u.SetGroupVersionKind(skeinv1.GroupVersion.WithKind("Thread"))
	u.SetNamespace("default")
	u.SetName(name + "-" + uuid.NewString())
	u.SetFinalizers([]string{skeinv1.Finalizer})
	return u
}

// loosen takes the schema of Threads away; restore returns when the API server has it again.
func loosen(ctx context.Context) (restore func()) {
	GinkgoHelper()
	schema := func(s *apiextensionsv1.JSONSchemaProps) (was *apiextensionsv1.JSONSchemaProps) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(api.Get(ctx, client.ObjectKey{Name: "threads.skein.dev"}, crd)).To(Succeed())
		was = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema = s
		Expect(api.Update(ctx, crd)).To(Succeed())
		return was
	}
	wrong := func() error { return api.Create(ctx, threadOf("probe", "[nothing]"), client.DryRunAll) }
	strict := schema(&apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)})
	Eventually(ctx, wrong).Should(Succeed())
	return func() {
		GinkgoHelper()
		schema(strict)
		Eventually(ctx, wrong).Should(MatchError(apierrors.IsInvalid, "IsInvalid"))
	}
}

// force creates a Thread past the schema, and returns when the API server has the schema again.
func force(ctx context.Context, u *unstructured.Unstructured) {
	GinkgoHelper()
	restore := loosen(ctx)
	Expect(api.Create(ctx, u)).To(Succeed())
	restore()
}

// withoutIndexes is a client that lists without the indexes that the manager's cache has. No spec here has objects that
// they would leave out.
type withoutIndexes struct{ client.Client }

func (c withoutIndexes) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	opts = slices.DeleteFunc(opts, func(o client.ListOption) bool {
		_, is := o.(client.MatchingFields)
		return is
	})
	return c.Client.List(ctx, list, opts...)
}

// reconcile reconciles a Thread once.
func reconcile(ctx context.Context, e *controllertest.Env, u *unstructured.Unstructured) error {
	c := withoutIndexes{api}
	r := thread.New(thread.Options{Client: c, Live: c, Threads: e.Threads, Engine: e.Engine, Sandboxes: forgotten{}, Recorder: e.Recorder, Clock: e.Clock})
	_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(u)})
	return err
}

type forgotten struct{}

func (forgotten) Forget(string) {}

var _ = Describe("Deleting a Thread that cannot be decoded", Label("K8S-08"), func() {
	DescribeTable("purges what is stored of it and lets it go, without a correction",
		func(ctx SpecContext, spec, says string, retained bool) {
			e := controllertest.New(ctx)
			u := threadOf("t", spec)
			force(ctx, u)
			o := &skeinv1.Thread{}
			key := client.ObjectKeyFromObject(u)
			Expect(api.Get(ctx, key, o)).To(Succeed())
			Expect(o.Undecodable).To(ContainSubstring(says))
			st, _, err := e.Threads.Create(ctx, domain.NewThread{Thread: store.Thread{ID: string(o.UID), Namespace: o.Namespace, Name: o.Name, Agent: "a"}})
			Expect(err).NotTo(HaveOccurred())

			Expect(api.Delete(ctx, o)).To(Succeed())
			Expect(api.Get(ctx, key, o)).To(Succeed(), "the finalizer holds it")
			Expect(reconcile(ctx, e, u)).To(Succeed())
			Expect(api.Get(ctx, key, o)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
			row, err := e.Store.Thread(ctx, st.ID)
			if retained {
				Expect(err).NotTo(HaveOccurred())
				Expect(row.RetainedAt).NotTo(BeZero())
			} else {
				Expect(err).To(MatchError(store.ErrNotFound))
			}
		},
		Entry("with a value that no rule reads", SpecTimeout(patience), `{agentRef: {name: a}, title: {x: 1}, deletionPolicy: Delete}`, "spec.title", false),
		Entry("with a value of another type than its rule takes", SpecTimeout(patience), `{agentRef: {name: a}, idleExpiry: 30, deletionPolicy: Delete}`, "spec.idleExpiry", false),
		Entry("with several of them", SpecTimeout(patience), `{agentRef: a, idleExpiry: 30, env: {a: 1}, limits: {maxCost: [], maxSteps: many}, hooks: 7, tags: x, deletionPolicy: Delete}`, "spec.env", false),
		Entry("with a wrong item of a list", SpecTimeout(patience), `{agentRef: {name: a}, env: [{name: 1, value: {}}, 7], deletionPolicy: Delete}`, "spec.env[0]", false),
		Entry("with a deletionPolicy that is unknown, so that nothing is lost", SpecTimeout(patience), `{agentRef: {name: a}, idleExpiry: 30, deletionPolicy: [1]}`, "spec.deletionPolicy", true),
	)

	It("keeps what another finalizer holds", func(ctx SpecContext) {
		e := controllertest.New(ctx)
		u := threadOf("held", `{agentRef: {name: a}, idleExpiry: 30, deletionPolicy: Delete}`)
		u.SetFinalizers([]string{skeinv1.Finalizer, "example.com/mine"})
		force(ctx, u)
		Expect(api.Delete(ctx, u)).To(Succeed())
		key := client.ObjectKeyFromObject(u)
		Expect(reconcile(ctx, e, u)).To(Succeed())
		o := &skeinv1.Thread{}
		Expect(api.Get(ctx, key, o)).To(Succeed())
		Expect(o.Finalizers).To(ConsistOf("example.com/mine"))
		Expect(o.Spec.AgentRef.Name).To(Equal("a"))
		Expect(o.Undecodable).To(BeEmpty())
	}, SpecTimeout(patience))

	It("purges by the label when spec.threadID is what is wrong, and ends once the API server takes a write", func(ctx SpecContext) {
		e := controllertest.New(ctx)
		const id = "0198f000-0000-7000-8000-000000000001"
		u := threadOf("adopted", `{agentRef: {name: a}, threadID: [1], deletionPolicy: Delete}`)
		u.SetLabels(map[string]string{skeinv1.LabelThreadID: id})
		force(ctx, u)
		_, _, err := e.Threads.Create(ctx, domain.NewThread{Thread: store.Thread{ID: id, Namespace: "default", Name: u.GetName(), Agent: "a"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.Store.Apply(ctx, id, nil, &store.Retain{})).To(Succeed())
		Expect(e.Store.Apply(ctx, id, nil, &store.Adopt{ObjectUID: string(u.GetUID()), Name: u.GetName(), Agent: "a"})).To(Succeed())
		Expect(api.Delete(ctx, u)).To(Succeed())
		Expect(reconcile(ctx, e, u)).To(MatchError(apierrors.IsInvalid, "IsInvalid"), "the rule that fixes threadID reads the old one, so nothing corrects it")
		_, err = e.Store.Thread(ctx, id)
		Expect(err).To(MatchError(store.ErrNotFound))

		defer loosen(ctx)()
		Expect(reconcile(ctx, e, u)).To(Succeed())
		Expect(api.Get(ctx, client.ObjectKeyFromObject(u), &skeinv1.Thread{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	}, SpecTimeout(patience))

	It("purges no data of another object that its label names", func(ctx SpecContext) {
		e := controllertest.New(ctx)
		const id = "0198f000-0000-7000-8000-000000000002"
		u := threadOf("thief", `{agentRef: {name: a}, idleExpiry: 30, deletionPolicy: Delete}`)
		u.SetLabels(map[string]string{skeinv1.LabelThreadID: id})
		force(ctx, u)
		_, _, err := e.Threads.Create(ctx, domain.NewThread{Thread: store.Thread{ID: id, Namespace: "default", Name: "other", Agent: "a"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(api.Delete(ctx, u)).To(Succeed())
		Expect(reconcile(ctx, e, u)).To(Succeed())
		_, err = e.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(patience))
})
