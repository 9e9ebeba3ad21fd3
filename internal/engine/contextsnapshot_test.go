package engine_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("state.context", Label("STA-08"), func() {
	// Two replicas take turns, so that nothing is in the memory of the one that goes on.
	It("keeps over a wait what hooks make of it that are asked about messages just before", Label("HOK-01"), func(ctx SpecContext) {
		w := newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		keyset, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		var ring envkeys.Keyring
		Expect(ring.Use(keyset)).To(BeTrue())
		w.Threads.ServeEnv(thread.EnvOptions{Cipher: &ring, Layers: &required{names: []string{"A"}}})
		seen := func(name skeinv1.HookName) func(*definition.Agent) {
			return hook(name, `export default (state, m) => { const said = m.role === 'user' ? m.content : m.metadata?.queued_tool && 'a call'; if (said) (state.context.`+string(name)+` ??= []).push(said); };`)
		}
		w.Definitions.Put("a", seen(skeinv1.HookBeforeCreateMessage), seen(skeinv1.HookAfterCreateMessage),
			codeTool("get", `export default (state) => state.context`), enginetest.Approved(skeinv1.BuiltinKV, 0),
			enginetest.Script(enginetest.Call("set_value", map[string]any{"key": "k", "value": 1}), enginetest.Call("get", nil), enginetest.Say("done")))
		waits := func(ctx context.Context, id, reason string) {
			GinkgoHelper()
			Eventually(func() store.Run { return lastRunOrNone(ctx, w, id) }).Should(And(
				HaveField("Status", store.RunWaiting), HaveField("Reason", reason)))
			quiet(ctx, w, id)
		}

		_, stop := start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		waits(ctx, id, skeinv1.ReasonEnvMissing)
		stop()
		_, stop = start(w)
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetEnv(ctx, "A", "value", "")).To(Succeed())
		waits(ctx, id, skeinv1.ReasonWaitingForApproval)
		Expect(w.Store.Apply(ctx, id, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: enginetest.JSON(store.QueuedTool{Name: "get", Arguments: []byte("{}")})}})).To(Succeed())
		quiet(ctx, w, id)
		send(ctx, w, id, "two")
		Eventually(func() ([]string, error) { return w.Store.Runnable(ctx, 10) }).Should(BeEmpty())
		stop()
		e, _ := start(w)
		list, _, err := e.Approvals(ctx, id, approval.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveLen(1))
		_, err = e.Decide(ctx, id, list[0].ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).NotTo(HaveOccurred())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElement(`tool get success: {"after_create_message":["a call","two"],"before_create_message":["one","a call","two"]}`),
			"what a message at rest is told of has a context of its own; none is told twice")
	})
})
