package engine_test

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A child that is terminated while its run begins", Label("SUB-08"), func() {
	It("is terminated in the registry, too", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		w.Definitions.Put("parent", func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Resumable: true,
				ParentCommunication: skeinv1.CommunicationImplicit, MaxInstances: 10}}
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Builtin: skeinv1.BuiltinSubagents})
		}, enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "x"})}},
			enginetest.Say("done")))
		beginning := &atBeginning{Store: w.Store}
		e, _ := start(w, func(o *engine.Options) { o.Threads = w.Over(beginning) })
		ended := make(chan string, 1)
		beginning.set(func(id string) {
			Expect(e.Terminate(context.WithoutCancel(ctx), id, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
			ended <- id
		})
		send(ctx, w, makeThread(ctx, w, "parent"), "go")
		var child string
		Eventually(ended).Should(Receive(&child))
		Eventually(func() store.Run { return lastRunOr(ctx, w, child) }).Should(HaveField("Status", store.RunTerminated))
		Expect(w.Store.Thread(ctx, child)).To(And(HaveField("TerminatedAt", Not(BeZero())), HaveField("RegistryStatus", "terminated")))
	})
})

// atBeginning does something once, before the first write of a child's run is made. The write goes on after it.
type atBeginning struct {
	store.Store
	mu sync.Mutex
	do func(id string)
}

func (b *atBeginning) set(do func(id string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.do = do
}

func (b *atBeginning) Apply(ctx context.Context, id string, fence *store.Fence, ops ...store.Op) error {
	for _, op := range ops {
		u, ok := op.(*store.UpdateThread)
		if !ok || u.RegistryStatus == nil || *u.RegistryStatus != "running" {
			continue
		}
		b.mu.Lock()
		do := b.do
		b.do = nil
		b.mu.Unlock()
		if do != nil {
			do(id)
		}
		ctx = context.WithoutCancel(ctx)
	}
	return b.Store.Apply(ctx, id, fence, ops...)
}
