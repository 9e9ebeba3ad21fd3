package apiserver

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("a relationship", Label("REL-01", "K8S-04"), func() {
	It("needs the right for both threads, because it is stored at both", func() {
		e := newEnv()
		e.thread("own")
		other, _ := e.thread("other")
		link := func(id string) (*http.Response, string) {
			GinkgoHelper()
			return e.do("POST", at("own", "/relationships"), strings.NewReader(`{"threadID":"`+id+`","type":"mention","role":"parent"}`),
				"Content-Type", "application/json", "Authorization", "Bearer bob")
		}
		e.rights.allow = map[string]bool{"bob create threads/relationships ns/own": true}
		for _, id := range []string{"other", other.ID()} {
			resp, body := link(id)
			Expect(resp.StatusCode).To(Equal(http.StatusForbidden), body)
			Expect(body).To(ContainSubstring("threads/relationships"))
		}
		_, body := e.do("GET", at("other", "/relationships"), nil)
		Expect(body).To(ContainSubstring(`"relationships":[]`))
		e.rights.mu.Lock()
		e.rights.allow["bob create threads/relationships ns/other"] = true
		e.rights.mu.Unlock()
		resp, body := link("other")
		Expect(resp.StatusCode).To(Equal(http.StatusCreated), body)
	})

	It("is refused because of the other thread when that one is being purged", Label("THR-09"), func(ctx SpecContext) {
		e := newEnv()
		e.thread("a")
		b, _ := e.thread("b")
		_, err := b.Inject(ctx, thread.NewMessage{Content: new("hello")})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.svc.Store().MarkDeleted(ctx, b.ID(), b.ID())).To(Succeed())
		Expect(e.svc.Store().Apply(ctx, b.ID(), nil, &store.Destroy{})).To(Succeed()) // so it is until its rows are removed
		refused := e.status("POST", at("a", "/relationships"), `{"threadID":"b","type":"mention","role":"child","messageIndex":0}`)
		Expect(refused).To(beOf("threadID"))
	})

	It("is refused because of the thread that is purged meanwhile", Label("THR-09"), func(ctx SpecContext) {
		var e *testEnv
		goes := ""
		e = newEnv(func(o *Options) {
			o.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetName() == "b" { // both threads were read
					defer GinkgoRecover()
					Expect(e.svc.Purge(ctx, goes)).To(Succeed())
				}
				return authorizer.DecisionAllow, "", nil
			})
		})
		a, _ := e.thread("a")
		b, _ := e.thread("b")
		const link = `{"threadID":"b","type":"mention","role":"parent"}`
		goes = b.ID()
		Expect(e.status("POST", at("a", "/relationships"), link)).To(beOf("threadID"))

		Expect(e.kube.Delete(ctx, &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}})).To(Succeed())
		e.thread("b")
		goes = a.ID()
		gone := e.status("POST", at("a", "/relationships"), link)
		Expect(gone).To(And(HaveField("Code", BeEquivalentTo(http.StatusNotFound)), HaveField("Details.Name", "a")))
	})
})

// beOf matches a Status about a wrong field.
func beOf(field string) types.GomegaMatcher {
	return And(HaveField("Code", BeEquivalentTo(http.StatusUnprocessableEntity)), HaveField("Details.Causes", ConsistOf(HaveField("Field", field))))
}
