package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/process"
)

// heldModels has models that hold their second answer until the call is cancelled or release is closed.
type heldModels struct {
	model.Factory
	asked   atomic.Int32
	held    chan struct{} // closed when an answer is held
	release chan struct{}
}

func (h *heldModels) Client(c model.Config) (model.Client, error) {
	client, err := h.Factory.Client(c)
	return &heldModel{client, h}, err
}

type heldModel struct {
	model.Client
	of *heldModels
}

func (m *heldModel) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	if m.of.asked.Add(1) == 2 {
		close(m.of.held)
		select {
		case <-m.of.release:
		case <-ctx.Done():
		}
	}
	return m.Client.Stream(ctx, req, emit)
}

var _ = Describe("Endpoints of a busy sandbox", Label("END-01"), func() {
	It("say that nothing has run, and that a retry helps", func(ctx SpecContext) {
		w := newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Second, MaxMemory: 64 << 20, Concurrency: 1})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		models := &heldModels{Factory: w.Models, held: make(chan struct{}), release: make(chan struct{})}
		w.Models = models
		w.Definitions.Put("a", codeTool("t", `export default () => 'done'`), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("ok")))
		m, failed := compile.Compile("endpoint.ts", endpointHead+`export default defineThreadEndpoint(() => 'here');`, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		w.Definitions.PutEndpoint("GET /x", definition.Endpoint{Module: m})
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		ask := func() (*answered, error) {
			a := &answered{}
			return a, e.ServeEndpoint(ctx, id, endpoints.Request{Method: "GET", Path: []string{"x"}, URL: "https://skein.example/x"}, a)
		}

		send(ctx, w, id, "go")
		Eventually(models.held).Should(BeClosed(), "the isolate of the run is open, and has nothing to do")
		_, err = ask()
		var busy *endpoints.Error
		Expect(errors.As(err, &busy)).To(BeTrue(), "%v", err)
		Expect(busy.Lost).To(BeTrue())
		Expect(busy.Timeout).To(BeFalse())
		Expect(busy.Message).To(ContainSubstring("the sandbox is busy"))

		close(models.release)
		rest(ctx, w, id)
		a, err := ask()
		Expect(err).NotTo(HaveOccurred())
		Expect(a.body()).To(Equal("here"))
	})
})
