package httptool_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/httptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
	"github.com/skein-dev/skein/internal/tool/tooltest"
)

var _ = Describe("The memory of answers to HTTP tools", Label("K8S-12", "TOL-02"), func() {
	It("is drawn from the account of the call as they come, and the call fails without it", func(ctx SpecContext) {
		host, closed, err := tooltest.NewHost(ctx, GinkgoT().TempDir(), nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(closed)
		text := "[" + strings.Repeat(`{"a":1},`, 10_000) + `{"a":2}]`
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
		DeferCleanup(server.Close)
		private, err := outbound.ParseHosts([]string{"127.0.0.1"})
		Expect(err).NotTo(HaveOccurred())
		network := outbound.New(outbound.Policy{Private: private})
		DeferCleanup(network.Close)
		budget := membudget.New(16<<20, time.Millisecond)
		call := func(result *skeinv1.HTTPResult) (tool.Result, int64) {
			r, err := httptool.Compile(&skeinv1.HTTPTool{URL: server.URL, Result: result}, httptool.Secrets{})
			Expect(err).NotTo(HaveOccurred())
			work, done := budget.Begin(ctx, "ns")
			defer done()
			t := httptool.New(httptool.Spec{Name: "t", Request: r, Timeout: 20 * time.Second}, host, network)
			return t.Call(work, tool.Call{ID: "call_1", Name: "t", Arguments: json.RawMessage(`{}`)}), membudget.From(work).Drawn()
		}
		res, held := call(nil)
		Expect(res).To(Equal(tool.Success(text)))
		Expect(held).To(BeNumerically(">=", 2*len(text)), "the body, and the text of the result")
		picked := &skeinv1.HTTPResult{JSONPath: "{[0].a}"}
		res, held = call(picked)
		Expect(res.Status).To(Equal(tool.StatusSuccess), res.Content)
		Expect(held).To(BeNumerically(">", 10_000*300), "an answer that is decoded takes what its values take")
		Expect(budget.Used()).To(BeZero())

		other := budget.Open("ns")
		Expect(other.TryDraw(6 << 20)).To(Succeed())
		res, _ = call(picked)
		Expect(res.Status).To(Equal(tool.StatusError))
		Expect(res.Content).To(And(ContainSubstring("127.0.0.1 was asked, and there is no memory for its answer"), ContainSubstring("do less at once, or try again later")))
		other.Close()
		Expect(budget.Used()).To(BeZero())
	})
})
