package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
	"github.com/skein-dev/skein/internal/thread"
)

// faulty is a store that refuses the first write of a run, and the first end of the tasks after one.
type faulty struct {
	store.Store
	run, tasks   error // nil for none
	runs, finals atomic.Int64
}

func (f *faulty) Apply(ctx context.Context, id string, fence *store.Fence, ops ...store.Op) error {
	isRun := func(op store.Op) bool { _, ok := op.(*store.PutRun); return ok }
	if f.run != nil && slices.ContainsFunc(ops, isRun) && f.runs.Add(1) == 1 {
		return f.run
	}
	return f.Store.Apply(ctx, id, fence, ops...)
}

func (f *faulty) FinishPostRun(ctx context.Context, ref store.RunRef) error {
	if f.tasks != nil && f.finals.Add(1) == 1 {
		return f.tasks
	}
	return f.Store.FinishPostRun(ctx, ref)
}

var _ = Describe("Log lines of the engine", Label("K8S-06"), func() {
	var (
		w     *enginetest.World
		mu    sync.Mutex
		lines []string
	)
	BeforeEach(func() {
		w = newWorld()
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
		lines = nil
		w.Logger = funcr.NewJSON(func(line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}, funcr.Options{})
		provider := sdktrace.NewTracerProvider()
		telemetry.Install(&telemetry.Provider{Tracer: provider.Tracer(telemetry.Scope)})
		DeferCleanup(telemetry.Install, (*telemetry.Provider)(nil))
	})
	// line returns the keys and values of the first line with a text.
	line := func(text string) (out map[string]any) {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lines {
			if strings.Contains(l, text) {
				if err := json.Unmarshal([]byte(l), &out); err != nil {
					return map[string]any{"unreadable": l}
				}
				return out
			}
		}
		return nil
	}
	losses := func() float64 {
		GinkgoHelper()
		m := &dto.Metric{}
		Expect(metrics.LeaseLosses.Write(m)).To(Succeed())
		return m.GetCounter().GetValue()
	}

	DescribeTable("about a run that does not go on name the Thread, the trace and the request", func(ctx SpecContext, cause error, says string, lost int) {
		before := losses()
		start(w, func(o *engine.Options) { o.Threads = w.Over(&faulty{Store: w.Store, run: cause}) })
		id := makeThread(ctx, w, "a")
		asked, span := telemetry.Start(telemetry.WithRequestID(ctx, "request-1"), "create threads/queue", trace.SpanKindServer, enginetest.Namespace)
		defer span.End()
		st, err := w.Over(telemetry.NewStore(w.Store)).Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		text := "hello"
		_, err = st.Queue(asked, thread.NewMessage{Content: &text})
		Expect(err).NotTo(HaveOccurred())
		Eventually(line).WithArguments(says).Should(And(
			HaveKeyWithValue("namespace", enginetest.Namespace), HaveKeyWithValue("name", "t-"+id[:8]), HaveKeyWithValue("thread", id),
			HaveKeyWithValue("trace_id", trace.SpanContextFromContext(asked).TraceID().String()), HaveKeyWithValue("request_id", "request-1")))
		Expect(losses()-before).To(BeEquivalentTo(lost), "skein_engine_lease_losses_total")
	},
		Entry("another replica has its lease", store.ErrFenced, "thread was lost to another holder", 1),
		Entry("the store fails", errors.New("the disk is on fire"), "run was interrupted and will be resumed", 0),
	)

	It("about the tasks after a run name the Thread and the run", func(ctx SpecContext) {
		start(w, func(o *engine.Options) {
			o.Threads = w.Over(&faulty{Store: w.Store, tasks: errors.New("the disk is on fire")})
			o.PostRun = []postrun.Task{{Name: "title", Do: func(context.Context, postrun.Run) error { return nil }}}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "hello")
		Eventually(line).WithArguments("cannot do the tasks after a run").Should(And(
			HaveKeyWithValue("namespace", enginetest.Namespace), HaveKeyWithValue("name", "t-"+id[:8]), HaveKeyWithValue("thread", id)))
		Expect(line("cannot do the tasks after a run")).To(HaveKeyWithValue("run", lastRun(ctx, w, id).ID))
	})
})
