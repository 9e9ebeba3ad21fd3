package conformance

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// fixtureEndpoint is an endpoint of test/fixtures.
func fixtureEndpoint(ns, name, path string, list ...skeinv1.EndpointMethod) *skeinv1.ThreadEndpoint {
	GinkgoHelper()
	return harness.Endpoint(ns, name, path, fixture("endpoints/"+name+".ts"), methods(list...))
}

var _ = Describe("Code written for endpoints", Label("TOL-03", "END-01"), func() {
	It("runs unchanged as a function, and as an object with one", func(ctx SpecContext) {
		ns := namespace(ctx)
		wire := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		t := golang(wire)
		serveReady(ctx, fixtureEndpoint(ns, "summary", "/summary/[part]", "GET"), fixtureEndpoint(ns, "notes", "/notes", "POST"), fixtureEndpoint(ns, "orders", "/orders/[id]", "GET"))
		o, err := wire.Object(ctx)
		Expect(err).NotTo(HaveOccurred())

		got, err := ask(ctx, t, "POST", "/notes", `{"note":"to check"}`)
		Expect(err).NotTo(HaveOccurred())
		ms, err := wire.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(ms)).To(HaveExactElements("user: to check"))
		Expect(got.body).To(MatchJSON(`{"id":"` + ms[0].ID + `"}`))

		got, err = ask(ctx, t, "GET", "/summary/first", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.body).To(MatchJSON(`{"method":"GET","thread":"` + string(o.UID) + `","total":1,"resting":true,"part":"first"}`))

		got, err = ask(ctx, t, "GET", "/orders/7", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.body).To(Equal("POST https://shop.example/orders/7\nof this thread"))
		Expect(got.header.Get("X-Sent-As")).To(Equal("application/json"))
	}, SpecTimeout(5*time.Minute))

	It("runs unchanged as an object with a function for each method", func(ctx SpecContext) {
		ns := namespace(ctx)
		wire := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		t := golang(wire)
		serveReady(ctx, fixtureEndpoint(ns, "ledger", "/ledger/[*]", "GET", "POST", "PUT", "PATCH", "DELETE"))
		answers := func(method, path, body string, status int, want OmegaMatcher) asked {
			GinkgoHelper()
			got, err := ask(ctx, t, method, path, body)
			Expect(err).NotTo(HaveOccurred())
			Expect(got.status).To(Equal(status), got.body)
			Expect(got.body).To(want)
			return got
		}
		answers("GET", "/ledger/2026/march", "", 404, Equal("nothing there"))
		got := answers("POST", "/ledger/2026/march", "three short words", 201, And(ContainSubstring(`"words":3`), MatchRegexp(`"by":"[^"]+"`)))
		Expect(got.header.Get("Location")).To(HaveSuffix("/ledger/2026/march"))
		answers("POST", "/ledger/2026/march", "", 201, ContainSubstring(`"words":0`))
		answers("GET", "/ledger/2026/march", "", 200, And(ContainSubstring(`"words":3`), ContainSubstring(`"words":0`)))
		got = answers("GET", "/ledger/2026/march?as=text", "", 200, Equal("1: 3\n2: 0\n"))
		Expect(got.header.Get("X-Entries")).To(Equal("2"))
		Expect(got.header.Get("Content-Type")).To(Equal("text/plain"))
		answers("HEAD", "/ledger/2026/march", "", 200, BeEmpty())
		answers("PUT", "/ledger/notes.json", `{"n":1}`, 200, MatchJSON(`{"size":7,"execution":null}`))
		Expect(wire.ReadFile(ctx, "/notes.json")).To(BeEquivalentTo(`{"n":1}`))
		got = answers("PATCH", "/ledger/2026/march", "x", 422, Equal("no PATCH here"))
		Expect(got.header.Get("X-Method")).To(Equal("PATCH"))
		answers("DELETE", "/ledger/2026/march", "", 204, BeEmpty())
		answers("GET", "/ledger/2026/march", "", 404, Equal("nothing there"))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("Code written for the runtime context", Label("TOL-03", "TOL-04"), func() {
	DescribeTable("runs unchanged", func(ctx SpecContext, platform map[string]any, want, wantStatus string) {
		ns := namespace(ctx)
		if platform != nil {
			defaultPool(ctx, ns, skeinv1.SandboxPoolSpec{RuntimeContext: harness.Raw(platform)})
		}
		t := useFixtures(ctx, ns, []skeinv1.ScriptStep{harness.Calls("runtime_context", map[string]any{"greeting": "hello,"})}, []string{"runtime-context"})
		content, status := result(say(ctx, t, 1, "go"), "runtime_context")
		Expect(content).To(Equal(want))
		Expect(status).To(Equal(wantStatus))
		Eventually(ctx, func(g Gomega) {
			tool := &skeinv1.Tool{}
			g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "runtime-context"}, tool)).To(Succeed())
			g.Expect(tool.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionPackable, metav1.ConditionFalse, skeinv1.ReasonReadsRuntimeContext)))
		}).Should(Succeed())
	},
		Entry("where the platform team has configured it", map[string]any{"env": map[string]any{"COMPANY": "Example"}}, "hello, Example", "success", SpecTimeout(5*time.Minute)),
		Entry("where they have not", nil, "The platform does not say.", "error", SpecTimeout(5*time.Minute)),
	)
})
