package engine_test

import (
	"context"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("Files of subagents", Label("FIL-07"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	helper := func(a *definition.Agent) {
		a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Blocking: true}}
		a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Builtin: skeinv1.BuiltinSubagents})
	}

	It("go down and up with paths of the receiver", func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Builtin(skeinv1.BuiltinFiles), func(a *definition.Agent) {
			a.A.Spec.SessionStop = &skeinv1.SessionTool{Name: "finish"}
		}, enginetest.Script(
			enginetest.Call("read_file", map[string]any{"path": "/attachments/orders.csv"}),
			enginetest.Call("write_file", map[string]any{"path": "/report.txt", "content": `seen: {{toolResult "read_file"}}`}),
			enginetest.Call("finish", map[string]any{"message": "see the report", "attachments": []string{"/report.txt"}})))
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinFiles), helper, enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("subagent_create", map[string]any{
				"agent": "helper", "message": "check", "attachments": []string{"/orders.csv"}})}},
			enginetest.Call("read_file", map[string]any{"path": "/attachments/report.txt"}),
			enginetest.Say(`{{toolResult "read_file"}}`)))
		start(w)
		id := makeThread(ctx, w, "parent")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.WriteFile(ctx, "/orders.csv", strings.NewReader("a,b"), thread.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		lines := told(ctx, w, id)
		Expect(lines[len(lines)-1]).To(Equal("assistant: seen: a,b"))
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(msgs[2].Attachments).To(HaveExactElements(HaveField("Path", "/attachments/report.txt")))
	})

	// handsUp has a child hand a file to its parent, which waits, and returns the parent. change changes the parent before the child does anything.
	handsUp := func(ctx SpecContext, change func(parent *thread.State)) string {
		GinkgoHelper()
		var changed atomic.Bool
		w.Models = patient{w.Models, "child", func(context.Context) bool { return changed.Load() }}
		w.Definitions.Put("child", enginetest.Builtin(skeinv1.BuiltinFiles), func(a *definition.Agent) {
			a.A.Spec.SessionStop = &skeinv1.SessionTool{Name: "finish"}
		}, enginetest.Script(
			enginetest.Call("write_file", map[string]any{"path": "/report.txt", "content": "report"}),
			enginetest.Call("finish", map[string]any{"message": "see the report", "attachments": []string{"/report.txt"}})))
		w.Definitions.Put("parent", helper, enginetest.Script(
			enginetest.Call("subagent_create", map[string]any{"agent": "helper", "message": "check"}), enginetest.Say(`{{toolResult "subagent_create"}}`)))
		start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunWaiting))
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(children).To(HaveLen(1))
		child := children[0].ID
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		change(st)
		changed.Store(true)
		Expect(rest(ctx, w, child).Status).To(Equal(store.RunSucceeded))
		ended, err := w.Store.Thread(ctx, child)
		Expect(err).NotTo(HaveOccurred())
		Expect(ended.TerminatedReason).To(Equal(skeinv1.ReasonSessionEnded))
		return id
	}

	DescribeTable("stay behind when the parent cannot take them, and the result says why", Label("FIL-08", "SUB-04"),
		func(ctx SpecContext, change func(ctx SpecContext, parent *thread.State), why string) {
			id := handsUp(ctx, func(parent *thread.State) { change(ctx, parent) })
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			lines := told(ctx, w, id)
			Expect(lines[len(lines)-1]).To(And(HavePrefix("assistant: see the report\n[attachments could not be handed over: "), ContainSubstring(why)))
			Expect(w.Store.File(ctx, id, "/attachments/report.txt")).Error().To(MatchError(store.ErrNotFound))
		},
		Entry("its quota of files is full", func(ctx SpecContext, parent *thread.State) {
			Expect(parent.SetFileQuota(ctx, ptr.To[int64](1), nil)).To(Succeed())
		}, "quota"),
		Entry("the quota of the namespace is full", func(SpecContext, *thread.State) {
			w.Store.LimitNamespaces(func(string) store.Quotas { // one file fits, and a copy does not
				return store.Quotas{store.QuotaBytes: {Hard: int64(len("report")), By: "the spec"}}
			})
		}, "bytes of files"),
		Entry("a file is where the folder of attachments would be", func(ctx SpecContext, parent *thread.State) {
			Expect(parent.WriteFile(ctx, "/attachments", strings.NewReader("x"), thread.WriteFileOptions{})).Error().NotTo(HaveOccurred())
		}, "/attachments: a file is where a folder is needed"),
	)

	It("do not keep a subagent from its end when the parent is retained", Label("SUB-04", "THR-09"), func(ctx SpecContext) {
		id := handsUp(ctx, func(parent *thread.State) { Expect(parent.Apply(ctx, &store.Retain{})).To(Succeed()) })
		Expect(w.Store.File(ctx, id, "/attachments/report.txt")).Error().To(MatchError(store.ErrNotFound))
	})
})
