package openai_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/openai"
)

var _ = Describe("The memory of answers of models", Label("K8S-12", "AGT-06"), func() {
	var budget *membudget.Budget
	var requests atomic.Int32
	var handler http.HandlerFunc
	var client *openai.Client
	BeforeEach(func() {
		requests.Store(0)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			handler(w, r)
		}))
		DeferCleanup(server.Close)
		budget = membudget.New(8<<20, 1500*time.Millisecond)
		var err error
		client, err = openai.New(model.Config{Namespace: "ns", Name: "gpt", APIKey: canary, Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderOpenAI, Model: "m", Endpoint: server.URL + "/v1",
			Timeout: &metav1.Duration{Duration: time.Minute}, IdleTimeout: &metav1.Duration{Duration: 500 * time.Millisecond}, // less than a call waits for memory
		}})
		Expect(err).NotTo(HaveOccurred())
	})
	hello := model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: "hello"}}}
	ask := func(ctx SpecContext) (res *model.Response, held int64, err error) {
		work, done := budget.Begin(ctx, "ns")
		defer done()
		res, err = client.Stream(work, hello, func(model.Delta) {})
		return res, membudget.From(work).Drawn(), err
	}

	It("is drawn as they come, and returned with the account", func(ctx SpecContext) {
		text := strings.Repeat("x", 100<<10)
		handler = answers(chunk(`{"content":"`+text+`"}`, ""), chunk(`{"content":"`+text+`"}`, "stop"), done)
		res, held, err := ask(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Content).To(Equal(text + text))
		Expect(held).To(BeNumerically(">=", len(res.Content)))
		Expect(budget.Used()).To(BeZero())
	})

	It("is asked for before a call is made, which costs nothing then", func(ctx SpecContext) {
		handler = answers(chunk(`{"content":"x"}`, "stop"), done)
		other := budget.Open("ns")
		Expect(other.TryDraw(4 << 20)).To(Succeed())
		_, _, err := ask(ctx)
		var busy *membudget.BusyError
		Expect(errors.As(err, &busy)).To(BeTrue(), "%v", err)
		Expect(requests.Load()).To(BeZero())
		other.Close()
		_, _, err = ask(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(budget.Used()).To(BeZero())
	})

	DescribeTable("ends a call whose answer takes more, and says so", func(ctx SpecContext, answer http.HandlerFunc) {
		handler = answer
		other := budget.Open("ns")
		Expect(other.TryDraw(3 << 20)).To(Succeed())
		_, _, err := ask(ctx)
		var failed *model.Error
		Expect(errors.As(err, &failed)).To(BeTrue(), "%v", err)
		Expect(failed.Kind).To(Equal(model.KindNoMemory), "%v: while it waits for memory, it does not wait for the model", err)
		Expect(failed.Message).To(And(ContainSubstring("there is no memory for the answer of the model"), ContainSubstring("do less at once, or try again later")))
		Expect(failed.Passing).To(BeTrue())
		other.Close()
		Expect(budget.Used()).To(BeZero())
	},
		Entry("with much text", answers(strings.Repeat(chunk(`{"content":"`+strings.Repeat("x", 100<<10)+`"}`, ""), 30), done)),
		Entry("with much to decode", answers(chunk(`{"content":"x","a":[`+strings.Repeat("{},", 10_000)+`{}]}`, "stop"), done)),
	)

	It("is drawn for embeddings", func(ctx SpecContext) {
		vector, err := json.Marshal(make([]float32, 20_000))
		Expect(err).NotTo(HaveOccurred())
		handler = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":`+string(vector)+`}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}`)
		}
		work, done := budget.Begin(ctx, "ns")
		_, err = client.Embed(work, []string{"x"})
		Expect(err).NotTo(HaveOccurred())
		Expect(membudget.From(work).Drawn()).To(BeNumerically(">", 20_000*8))
		done()
		Expect(budget.Used()).To(BeZero())
	})
})
