package engine_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/mcptool"
)

var _ = Describe("Firings that queue a tool", Label("EFF-03", "TOL-01"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	queue := func(ctx context.Context, id, name string, args any) store.Firing {
		GinkgoHelper()
		return fireEffect(ctx, w, id, "", args, func(f *store.Firing) {
			f.Target = effects.Target{Queue: &effects.ToolCall{Name: name}, Retry: &effects.Retry{Attempts: 5}}.Encode()
		})
	}
	read := func(ctx context.Context, f store.Firing) func() *store.Firing {
		return func() *store.Firing {
			got, err := w.Store.Firing(ctx, f.Key())
			Expect(err).NotTo(HaveOccurred())
			return got
		}
	}

	It("fail at once when the agent has no such tool, and say which it has", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "a")
		f := endedFiring(ctx, w, queue(ctx, id, "set_valeu", map[string]any{}))
		Expect(f).To(And(HaveField("Status", store.FiringFailed), HaveField("Attempts", 1),
			HaveField("Error", And(HavePrefix(`the agent a has no tool "set_valeu": did you mean set_value`), ContainSubstring("get_value")))))
		quiet(ctx, w, id)
		Expect(told(ctx, w, id)).To(BeEmpty())
	})

	It("say of an agent with two sides which tools either has", Label("AGT-09"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Say("a")),
			enginetest.Dual(enginetest.Script(enginetest.Say("b")), enginetest.Builtin(skeinv1.BuiltinFiles)))
		start(w)
		id := makeThread(ctx, w, "a")
		Expect(endedFiring(ctx, w, queue(ctx, id, "no_such_tool", nil))).To(And(HaveField("Status", store.FiringFailed),
			HaveField("Error", And(ContainSubstring("set_value"), ContainSubstring("read_file")))))
		Expect(endedFiring(ctx, w, queue(ctx, id, "raed_file", nil))).To(HaveField("Error", ContainSubstring("did you mean read_file")))
	})

	It("wait for an agent that is not ready", func(ctx SpecContext) {
		start(w)
		id := makeThread(ctx, w, "later")
		f := queue(ctx, id, "set_value", map[string]any{"key": "k", "value": 1})
		Eventually(read(ctx, f)).Should(HaveValue(And(HaveField("Waiting", ContainSubstring(`Agent "later" does not exist`)), HaveField("Attempts", 0))))
		w.Definitions.Put("later", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Say("done")))
		Expect(endedFiring(ctx, w, f)).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 1)))
		Eventually(func() (string, error) { v, err := w.Store.Value(ctx, id, "k"); return string(v), err }).Should(MatchJSON("1"))
	})

	// down is a change of an agent that adds a tool whose MCP server refuses connections.
	down := func(name string) func(*definition.Agent) {
		return func(a *definition.Agent) {
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Name: name})
			a.A.Tools = append(a.A.Tools, definition.Tool{ObjectName: name, Name: name, MCP: &mcptool.Server{
				Namespace: enginetest.Namespace, Name: name, UID: name, Version: "1", URL: "http://127.0.0.1:1/mcp",
			}})
		}
	}
	waits := func(what ...string) OmegaMatcher {
		all := []OmegaMatcher{ContainSubstring(`the agent a has no tool "remote"`)}
		for _, text := range what {
			all = append(all, ContainSubstring(text))
		}
		return HaveValue(And(HaveField("Waiting", And(all...)), HaveField("Attempts", 0)))
	}

	It("wait while an MCP server that may have the tool does not answer", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("done")), down("down"))
		start(w)
		id := makeThread(ctx, w, "a")
		Eventually(read(ctx, queue(ctx, id, "remote", nil))).Should(waits("MCP server down may be missing"))
	})

	DescribeTable("wait while an MCP server of one of two sides may have the tool", Label("AGT-09"), func(ctx SpecContext, a, b func(*definition.Agent), what ...string) {
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("a")), a, enginetest.Dual(enginetest.Script(enginetest.Say("b")), b))
		start(w)
		id := makeThread(ctx, w, "a")
		Eventually(read(ctx, queue(ctx, id, "remote", nil))).Should(waits(what...))
	},
		Entry("the first", down("first"), enginetest.Builtin(skeinv1.BuiltinKV), "MCP server first may be missing"),
		Entry("the second", enginetest.Builtin(skeinv1.BuiltinKV), down("second"), "MCP server second may be missing"),
		Entry("or both", down("first"), down("second"), "MCP server first may be missing", "MCP server second may be missing"),
	)

	It("give the call to the side that has the tool", Label("AGT-09"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("a")), enginetest.Dual(enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Say("b"))))
		start(w)
		id := makeThread(ctx, w, "a")
		Expect(endedFiring(ctx, w, queue(ctx, id, "set_value", map[string]any{"key": "k", "value": 1})).Status).To(Equal(store.FiringSucceeded))
		Eventually(func() (string, error) { v, err := w.Store.Value(ctx, id, "k"); return string(v), err }).Should(MatchJSON("1"))
	})
})
