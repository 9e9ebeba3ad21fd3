package conformance

import (
	"bytes"
	"net/http"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Agents", func() {
	It("end a turn by a stop tool, whose property is the answer", Label("AGT-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx,
			harness.CodeTool(ns, "finish", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'finish', execute: async (_state, args) => ({ status: 'success', result: args.summary }) });
`, map[string]any{"summary": map[string]any{"type": "string"}}, "summary"),
			harness.Scripted(ns, "model",
				harness.On("go", skeinv1.ScriptStep{Content: "thinking aloud"}),
				skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "assistant"}, Times: ptr.To[int32](0), ToolCalls: []skeinv1.ScriptToolCall{{Name: "finish", Arguments: harness.Raw(map[string]any{"summary": "all is counted"})}}},
				skeinv1.ScriptStep{Content: "must not be reached"},
			),
			harness.Prompt(ns, "prompt", "model", "finish"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
				s.SideA.StopOnResponse = ptr.To(false)
				s.SideA.StopTool, s.SideA.StopToolResponseProperty = "finish", "summary"
			}),
			harness.NewThread(ns, "thread", "agent"),
		)
		ms := say(ctx, ready(ctx, cluster.Thread(ns, "thread")), 1, "go")
		Expect(ms).To(HaveLen(5), "%v", texts(ms))
		Expect(text(ms[1])).To(Equal("assistant: thinking aloud"), "an answer alone does not end the turn")
		Expect(ms[2].ToolCalls).To(HaveLen(1))
		Expect(ms[3].ToolStatus).To(Equal("success"))
		Expect(text(ms[4])).To(Equal("assistant: all is counted"))
	}, SpecTimeout(5*time.Minute))

	It("stop after maxSteps with a stated reason", Label("AGT-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		loop := harness.Calls("list_files", map[string]any{})
		loop.Times = ptr.To[int32](0)
		create(ctx,
			harness.Scripted(ns, "model", loop),
			harness.Prompt(ns, "prompt", "model", "builtin:files"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) { s.SideA.MaxSteps = 3 }),
			harness.NewThread(ns, "thread", "agent"),
		)
		t := ready(ctx, cluster.Thread(ns, "thread"))
		say(ctx, t, 1, "go")
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs[0].Steps).To(Equal(3))
		Expect(runs[0].Reason).To(Equal("MaxStepsReached"))
	}, SpecTimeout(5*time.Minute))

	It("talk to any OpenAI-compatible endpoint, with a key that goes nowhere else", Label("AGT-06"), func(ctx SpecContext) {
		const canary = "sk-canary-3f9a71c2d4"
		ns := namespace(ctx)
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			if req.Messages[len(req.Messages)-1].Role == "tool" {
				harness.Say(w, req.Model, "There are ", "no files ", "yet.")
				return
			}
			harness.CallTool(w, req.Model, "call_1", "list_files", `{"prefix":"/"}`)
		})
		DeferCleanup(server.Close)
		create(ctx,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": canary}},
			harness.OpenAI(ns, "model", server.URL+"/v1", "key"),
			harness.Prompt(ns, "prompt", "model", "builtin:files"),
			harness.Agent(ns, "agent", "prompt"),
			harness.NewThread(ns, "thread", "agent"),
		)
		t := ready(ctx, cluster.Thread(ns, "thread"))
		ms := say(ctx, t, 1, "which files are there?")
		Expect(last(ms)).To(Equal("There are no files yet."))
		_, status := result(ms, "list_files")
		Expect(status).To(Equal("success"))
		requests, keys := server.Requests()
		Expect(requests).To(HaveLen(2))
		Expect(requests[0].Stream).To(BeTrue())
		Expect(requests[0].Messages[0].Role).To(Equal("system"))
		Expect(keys).To(HaveEach("Bearer " + canary))

		By("refusing the key with an answer that repeats it")
		server.Answer(func(w http.ResponseWriter, r *http.Request, _ harness.ChatRequest) {
			http.Error(w, `{"error":{"message":"bad key `+r.Header.Get("Authorization")+`","type":"invalid_request_error"}}`, http.StatusUnauthorized)
		})
		ms = say(ctx, t, 2, "again")
		Expect(last(ms)).To(HavePrefix("(error: "))
		Expect(last(ms)).NotTo(ContainSubstring(canary))
		everything, err := cluster.Kubectl(ctx, "-n", ns, "get", "threads,subagents,models,agents,prompts,events", "-o", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(everything).NotTo(ContainSubstring(canary))
		log, err := os.ReadFile(logFile.Name())
		Expect(err).NotTo(HaveOccurred())
		Expect(log).NotTo(ContainSubstring(canary))
		stored(func(path string, data []byte) {
			Expect(bytes.Contains(data, []byte(canary))).To(BeFalse(), path)
		})
	}, SpecTimeout(5*time.Minute))

	DescribeTable("say what is wrong with a model's endpoint, keep the message, and go on when it is mended", Label("AGT-06"),
		func(ctx SpecContext, bad func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest), reason string) {
			ns := namespace(ctx)
			server := harness.NewChatServer(bad)
			DeferCleanup(server.Close)
			model := harness.OpenAI(ns, "model", server.URL+"/v1", "")
			if reason == "ModelTimeout" {
				model.Spec.Timeout = &metav1.Duration{Duration: 2 * time.Second}
			}
			create(ctx, model, harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
			t := ready(ctx, cluster.Thread(ns, "thread"))
			ms := say(ctx, t, 1, "hello")
			Expect(texts(ms)).To(ContainElement("user: hello"))
			Expect(last(ms)).To(HavePrefix("(error: "))
			Expect(ms[len(ms)-1].Status).To(Equal(runtimev1.MessageFailed))
			runs, err := t.Runs(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(runs[0].Status).To(Equal(runtimev1.RunFailed))
			Expect(runs[0].Reason).To(Equal(reason), runs[0].Message)
			Expect(runs[0].Message).NotTo(BeEmpty())

			if reason == "ModelTimeout" { // what is short enough to wait for may be too short for an answer
				patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"timeout":"1m"}}`))
				Expect(cluster.Client.Patch(ctx, model, patch)).To(Succeed())
				Eventually(ctx, func(g Gomega) { // until the manager has seen it
					g.Expect(cluster.Client.Get(ctx, key(model), model)).To(Succeed())
					g.Expect(model.Status.ObservedGeneration).To(Equal(model.Generation))
				}).Should(Succeed())
			}
			server.Answer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
				harness.Say(w, req.Model, "better now")
			})
			Expect(last(say(ctx, t, 2, "again"))).To(Equal("better now"))
		},
		Entry("refuses", func(w http.ResponseWriter, _ *http.Request, _ harness.ChatRequest) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			_ = conn.Close()
		}, "ModelUnavailable", SpecTimeout(5*time.Minute)),
		Entry("times out", func(_ http.ResponseWriter, r *http.Request, _ harness.ChatRequest) { <-r.Context().Done() }, "ModelTimeout", SpecTimeout(5*time.Minute)),
		Entry("answers nonsense", func(w http.ResponseWriter, _ *http.Request, _ harness.ChatRequest) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"choices\": \"what\n\ndata: <html>\n\n"))
		}, "ModelBadAnswer", SpecTimeout(5*time.Minute)),
	)
})
