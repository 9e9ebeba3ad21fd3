package apiserver

import (
	"context"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/access"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// threadOf creates a thread of a namespace with a given id, with its object or without.
func (e *testEnv) threadOf(namespace, name, id string, withObject bool) {
	GinkgoHelper()
	if withObject {
		Expect(e.kube.Create(context.Background(), &skeinv1.Thread{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(id)}})).To(Succeed())
	}
	_, _, err := e.svc.Create(context.Background(), thread.NewThread{Thread: store.Thread{ID: id, Namespace: namespace, Name: name, Agent: "helper"}})
	Expect(err).NotTo(HaveOccurred())
}

// as returns a client of a user with rights.
func (e *testEnv) as(name string, allow ...string) *runtimeclient.Client {
	GinkgoHelper()
	e.rights.mu.Lock()
	if e.rights.allow == nil {
		e.rights.allow = map[string]bool{}
	}
	for _, a := range allow {
		e.rights.allow[name+" "+a] = true
	}
	e.rights.mu.Unlock()
	cfg := rest.CopyConfig(e.config)
	cfg.BearerToken = name
	c, err := runtimeclient.New(cfg)
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("lookups", Label("THR-16", "IDS-01"), func() {
	const (
		one   = "0190a4c2-7a1b-7c3d-8e4f-aabbccddeeff"
		two   = "0190a4c2-7a1b-7c3d-8e4f-aabbccddee00"
		twin  = "1190a4c2-7a1b-7c3d-8e4f-aabbccddeeff" // has the same short id as one
		other = "0190a4c2-7a1b-7c3d-8e4f-000000000001"
	)

	It("find a thread by every form of its id, across namespaces", func(ctx SpecContext) {
		e := newEnv()
		e.threadOf("ns", "hello", one, true)
		e.threadOf("far", "away", two, true)
		hex := strings.ReplaceAll(two, "-", "")
		for _, id := range []string{two, strings.ToUpper(two), "T-" + two, "t-" + strings.ToUpper(two), "thrd_" + hex, hex[20:], strings.ToUpper(hex[20:]), "away"} {
			Expect(e.client().Lookup(ctx, id)).To(And(HaveField("ThreadID", two), HaveField("Namespace", "far"), HaveField("Name", "away")), id)
		}
		for _, id := range []string{hex, hex[:12], "nobody", other, "thrd_" + hex[:31], "aabbccddee0", "aabbccddeegg"} {
			_, err := e.client().Lookup(ctx, id)
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s: %v", id, err)
		}
	})

	It("show nothing to those who may not read it, not even that it is there", func(ctx SpecContext) {
		e := newEnv()
		e.threadOf("ns", "hello", one, true)
		e.threadOf("far", "hello", two, true)
		bob := e.as("bob", "get lookups/ /hello", "get lookups/ /"+one, "get lookups/ /"+two, "get lookups/ /nobody", "get threads/ far/hello")
		Expect(bob.Lookup(ctx, "hello")).To(HaveField("ThreadID", two), "of two, the one that he may read")
		Expect(bob.Lookup(ctx, two)).To(HaveField("ThreadID", two))
		_, hidden := bob.Lookup(ctx, one)
		_, absent := bob.Lookup(ctx, "nobody")
		Expect(apierrors.IsNotFound(hidden)).To(BeTrue(), "%v", hidden)
		Expect(strings.ReplaceAll(hidden.Error(), one, "nobody")).To(Equal(absent.Error()))
		_, err := e.as("eve").Lookup(ctx, "hello")
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	})

	It("say which threads a short id may mean, of those that the caller may read", func(ctx SpecContext) {
		e := newEnv()
		e.threadOf("ns", "hello", one, true)
		e.threadOf("far", "twin", twin, true)
		_, err := e.client().Lookup(ctx, "aabbccddeeff")
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring("whole id"), ContainSubstring(one+" (hello in namespace ns)"), ContainSubstring(twin+" (twin in namespace far)"))))
		bob := e.as("bob", "get lookups/ /aabbccddeeff", "get threads/ ns/hello")
		Expect(bob.Lookup(ctx, "aabbccddeeff")).To(HaveField("ThreadID", one))
		// Within a namespace, the namespace decides.
		Expect(e.client().Thread("ns", "aabbccddeeff").Get(ctx)).To(HaveField("ThreadID", one))
		Expect(e.client().Thread("far", "AABBCCDDEEFF").Get(ctx)).To(HaveField("ThreadID", twin))
		e.threadOf("ns", "near-twin", "2190a4c2-7a1b-7c3d-8e4f-aabbccddeeff", true)
		_, err = e.client().Thread("ns", "aabbccddeeff").Get(ctx)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("whole id")))
		Expect(err).NotTo(MatchError(ContainSubstring(one)), "who asks may read one thread of that name, not those that it might mean")
	})

	It("prefer a thread with an object over a retained one", func(ctx SpecContext) {
		e := newEnv()
		e.threadOf("ns", "hello", one, false)
		e.threadOf("ns", "hello", two, true)
		Expect(e.client().Lookup(ctx, "hello")).To(HaveField("ThreadID", two))
		Expect(e.client().Lookup(ctx, one)).To(HaveField("ThreadID", one))
	})

	It("prefer a whole id over a name that looks like one", func(ctx SpecContext) {
		e := newEnv()
		e.threadOf("ns", "victim", one, true)
		e.threadOf("ns", one, two, true)
		Expect(e.client().Lookup(ctx, one)).To(HaveField("ThreadID", one))
	})

	It("are asked for as one, at the top, and only read", func() {
		e := newEnv()
		e.threadOf("ns", "hello", one, true)
		const base = "/apis/runtime.skein.dev/v1alpha1/"
		for path, code := range map[string]int{
			base + "lookups": 404, base + "namespaces/ns/lookups/hello": 404, base + "lookups/hello/messages": 404, base + "lookups/hello?limit=3": 422,
		} {
			Expect(e.status("GET", path, "").Code).To(BeEquivalentTo(code), path)
		}
		Expect(e.status("DELETE", base+"lookups/hello", "").Code).To(BeEquivalentTo(405))
	})
})

var _ = Describe("the namespaces that a caller may read", func() {
	allowed := func(e *testEnv, name string) ([]string, bool) {
		GinkgoHelper()
		ctx := apirequest.WithUser(context.Background(), &user.DefaultInfo{Name: name})
		access := &access.Reviews{Authorizer: authorizer.AuthorizerFunc(e.rights.authorize), Threads: e.svc}
		list, all, err := access.Namespaces(ctx, "get", "messages")
		Expect(err).NotTo(HaveOccurred())
		return list, all
	}

	It("are those with threads where he has the right, or simply all", func() {
		e := newEnv()
		for _, ns := range []string{"a", "b", "c", "b"} {
			e.threadOf(ns, "t", uuid.NewString(), false)
		}
		e.as("bob", "get threads/messages c/", "get threads/messages a/", "get threads/messages empty/", "get threads/ b/")
		list, all := allowed(e, "bob")
		Expect(all).To(BeFalse())
		Expect(list).To(Equal([]string{"a", "c"}))
		list, all = allowed(e, "eve")
		Expect(all).To(BeFalse())
		Expect(list).To(BeEmpty())
		_, all = allowed(e, "alice")
		Expect(all).To(BeTrue())
	})
})
