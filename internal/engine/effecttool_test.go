package engine_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/httptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

var _ = Describe("Firings that call a Tool over HTTP", Label("EFF-04"), func() {
	// never stands for a request that is not answered.
	const never = -1
	// calls answers the first requests with the given statuses, and all later ones with 200. A request that is answered with
	// status 0 breaks off. It returns how the firing ended, and the idempotency keys of the requests.
	calls := func(ctx context.Context, t effects.Target, statuses ...int) (f *store.Firing, keys []string) {
		GinkgoHelper()
		w := newWorld()
		private, err := outbound.ParseHosts([]string{"127.0.0.1"})
		Expect(err).NotTo(HaveOccurred())
		w.Network = outbound.New(outbound.Policy{Private: private})
		DeferCleanup(w.Network.Close)
		var mu sync.Mutex
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			mu.Lock()
			n := len(keys)
			keys = append(keys, r.Header.Get(httptool.HeaderIdempotencyKey))
			mu.Unlock()
			switch {
			case n >= len(statuses):
			case statuses[n] == never:
				_, _ = io.Copy(io.Discard, r.Body) // only then the end of the connection ends the context
				<-r.Context().Done()
			case statuses[n] == 0:
				panic(http.ErrAbortHandler)
			default:
				rw.WriteHeader(statuses[n])
				_, _ = rw.Write([]byte("no " + strconv.Itoa(n)))
			}
		}))
		DeferCleanup(server.Close)
		request, err := httptool.Compile(&skeinv1.HTTPTool{Method: "POST", URL: server.URL}, httptool.Secrets{})
		Expect(err).NotTo(HaveOccurred())
		w.Definitions.PutTool("hook", definition.Tool{ObjectName: "hook", Name: "hook", HTTP: request})
		start(w, func(o *engine.Options) { o.DefaultRetry = effects.Retry{Attempts: 3, First: time.Millisecond} })
		t.Tool = &effects.ToolCall{Name: "hook"}
		fired := store.Firing{
			EffectID: uuid.NewString(), Due: 1, Namespace: enginetest.Namespace, Name: "se", Origin: store.OriginSchedule,
			Target: t.Encode(),
		}
		Expect(w.Store.RecordFiring(ctx, fired)).To(BeTrue())
		ended := endedFiring(ctx, w, fired)
		mu.Lock()
		defer mu.Unlock()
		return &ended, keys
	}

	DescribeTable("try again what another attempt may mend", func(ctx SpecContext, first, second int) {
		f, keys := calls(ctx, effects.Target{}, first, second)
		Expect(f).To(HaveValue(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 3), HaveField("Error", ""))))
		Expect(keys).To(HaveLen(3))
		Expect(keys).To(HaveEach(And(Not(BeEmpty()), Equal(keys[0]))), "each with the same key")
	},
		Entry("a timeout", 408, 425),
		Entry("too much", 429, 500),
		Entry("a server's trouble", 503, 599),
		Entry("no answer", 0, 502),
	)

	DescribeTable("fail at once otherwise, with the status", func(ctx SpecContext, status int) {
		f, keys := calls(ctx, effects.Target{Retry: &effects.Retry{Attempts: 5, First: time.Millisecond}}, status)
		Expect(f).To(HaveValue(And(HaveField("Status", store.FiringFailed), HaveField("Attempts", 1),
			HaveField("Error", HavePrefix("the server answered "+strconv.Itoa(status))), HaveField("Error", HaveSuffix(": no 0")))))
		Expect(keys).To(HaveLen(1))
	}, Entry("a bad request", 400), Entry("not allowed", 403), Entry("not there", 404), Entry("not as it should be", 422))

	It("try again when no answer has come before their own timeout, as they do when that of the Tool passes", func(ctx SpecContext) {
		f, _ := calls(ctx, effects.Target{Timeout: 300 * time.Millisecond}, never, never, never)
		Expect(f).To(HaveValue(And(HaveField("Status", store.FiringFailed), HaveField("Attempts", 3),
			HaveField("Error", "gave up after 3 attempts: it did not end within 300ms, which spec.timeout allows"))))
		f, _ = calls(ctx, effects.Target{Timeout: 300 * time.Millisecond, Retry: &effects.Retry{Attempts: 1}}, never)
		Expect(f).To(HaveValue(And(HaveField("Status", store.FiringFailed), HaveField("Attempts", 1), HaveField("Error", "it did not end within 300ms, which spec.timeout allows"))))
	})

	It("heed the statuses and the number of their own policy", func(ctx SpecContext) {
		own := effects.Target{Retry: &effects.Retry{Attempts: 2, First: time.Millisecond, Statuses: []int{409}}}
		f, keys := calls(ctx, own, 409, 409, 409)
		Expect(f).To(HaveValue(And(HaveField("Status", store.FiringFailed), HaveField("Error", HavePrefix("gave up after 2 attempts: the server answered 409 Conflict")))))
		Expect(keys).To(HaveLen(2))
		f, keys = calls(ctx, own, 503)
		Expect(f).To(HaveValue(And(HaveField("Status", store.FiringFailed), HaveField("Error", HavePrefix("the server answered 503")))))
		Expect(keys).To(HaveLen(1))
		f, keys = calls(ctx, effects.Target{Retry: &effects.Retry{Attempts: 1}}, 503)
		Expect(f).To(HaveValue(And(HaveField("Status", store.FiringFailed), HaveField("Attempts", 1))))
		Expect(keys).To(HaveLen(1))
	})
})
