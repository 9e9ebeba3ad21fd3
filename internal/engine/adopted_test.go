package engine_test

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A thread that becomes a child", Label("SUB-01", "SUB-04"), func() {
	adopt := func(ctx context.Context, w *enginetest.World, id, parent string, resumable bool) {
		GinkgoHelper()
		Expect(w.Store.Apply(ctx, id, nil, &store.Attach{
			ParentID: parent, Reference: "ref", Agent: "child", Child: store.Child{Name: "helper", Resumable: resumable, ParentCommunication: "implicit"},
			RegistryStatus: func(last *store.Run) string { return string(last.Status) },
		})).To(Succeed())
	}
	for _, resumable := range []bool{true, false} {
		It("tells its parent of the run that was under way", func(ctx SpecContext) {
			w := newWorld()
			w.Definitions.Put("parent", enginetest.Script(enginetest.Say("{{.Last.Content}}")))
			w.Definitions.Put("child", enginetest.Script(enginetest.Say("{{.Last.Content}} is done")))
			var asked, goOn atomic.Bool
			start(w, func(o *engine.Options) {
				o.Models = patient{Factory: o.Models, name: "child", until: func(context.Context) bool { asked.Store(true); return goOn.Load() }}
			})
			parent, child := makeThread(ctx, w, "parent"), makeThread(ctx, w, "child")
			send(ctx, w, child, "work")
			Eventually(asked.Load).Should(BeTrue())
			adopt(ctx, w, child, parent, resumable)
			Expect(w.Store.Thread(ctx, child)).To(HaveField("RegistryStatus", "running"))
			goOn.Store(true)
			Expect(rest(ctx, w, child).Status).To(Equal(store.RunSucceeded))
			Expect(w.Store.Thread(ctx, child)).To(HaveValue(And(HaveField("RegistryStatus", "completed"), HaveField("TerminatedAt", WithTransform(func(at int64) bool { return at != 0 }, Equal(!resumable))))))
			Expect(told(ctx, w, child)).To(Equal([]string{"user: work", "assistant: work is done"}))
			Expect(rest(ctx, w, parent).Status).To(Equal(store.RunSucceeded))
			Expect(told(ctx, w, parent)).To(ContainElement(ContainSubstring("[subagent helper (ref) completed]\nwork is done")))
		})
	}
})
