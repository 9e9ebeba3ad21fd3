package conformance

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// member is one member of ThreadState at work.
type member struct {
	name string
	use  func()
}

var _ = Describe("ThreadState in Go", Label("THR-18", "THR-02", "THR-05"), func() {
	// One program goes through all members of one thread, a child that a parent's model has made. It knows the
	// interface only, and a member that it does not use is a failure.
	It("implements every member of the interface", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx,
			harness.Scripted(ns, "parent", harness.On("go", harness.Calls("subagent_create", map[string]any{
				"agent": "helper", "message": "hello", "arguments": map[string]any{"region": "north"},
			})), skeinv1.ScriptStep{Content: "noted", Times: new(int32)}),
			harness.Prompt(ns, "parent", "parent", "builtin:subagents"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.Resumable = true })}
			}),
			harness.Scripted(ns, "worker", harness.On("wait", harness.Slow(time.Hour, harness.Answer("never"))), harness.Echo()),
			harness.Prompt(ns, "worker", "worker", "builtin:kv"),
			harness.Agent(ns, "worker", "worker"),
			harness.Effect(ns, "remind", `import { defineEffect } from '@standardagents/builder'; export default defineEffect({ execute: async () => {} });`),
			harness.NewThread(ns, "thread", "parent"),
		)
		top := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(top.Say(ctx, "go")).To(Succeed())
		takenIn(ctx, top, reported)
		var parent runtimeclient.ThreadState = golang(top)
		info, err := parent.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Children()).To(HaveLen(1))
		reference := info.Children()[0].Reference
		wire := cluster.Thread(ns, info.Children()[0].ThreadName)
		settled(ctx, wire, 1)

		state, err := parent.ChildThread(ctx, reference)
		Expect(err).NotTo(HaveOccurred())
		var message *runtimev1.Message
		var effect string
		fresh := func() *runtimeclient.Info {
			GinkgoHelper()
			i, err := state.Info(ctx)
			Expect(err).NotTo(HaveOccurred())
			return i
		}
		members := []member{
			{"Info", func() {
				i := fresh()
				o, err := wire.Object(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(i.ThreadID()).To(Equal(string(o.UID)))
				Expect(i.AgentID()).To(Equal("worker"))
				Expect(i.UserID()).To(BeNil())
				Expect(time.UnixMicro(i.CreatedAt())).To(BeTemporally("~", time.Now(), 10*time.Minute))
				Expect(i.Arguments()).To(MatchJSON(`{"region":"north"}`))
				Expect(i.Children()).To(BeEmpty())
				Expect(i.Terminated()).To(BeNil())
				Expect(info.Arguments()).To(MatchJSON(`{}`), "empty where there are none")
			}},
			{"Messages", func() {
				Expect(state.Messages(ctx, runtimeclient.MessageOptions{})).To(And(HaveField("Total", int64(2)), HaveField("HasMore", false),
					HaveField("Messages", HaveExactElements(HaveField("Content", HaveValue(Equal("hello"))), HaveField("Content", HaveValue(Equal("echo: hello")))))))
			}},
			{"Inject", func() {
				message, err = state.Inject(ctx, runtimev1.NewMessage{Content: "for the record", Metadata: map[string]any{"a": 1}})
				Expect(err).NotTo(HaveOccurred())
				Expect(wire.Runs(ctx)).To(HaveLen(1), "nothing was started")
			}},
			{"Message", func() {
				Expect(state.Message(ctx, message.ID)).To(HaveField("Content", HaveValue(Equal("for the record"))))
				Expect(state.Message(ctx, "none")).To(BeNil())
			}},
			{"UpdateMessage", func() {
				Expect(state.UpdateMessage(ctx, message.ID, runtimev1.MessageUpdates{Metadata: map[string]any{"b": 2}})).To(
					HaveField("Metadata", And(HaveKeyWithValue("a", BeEquivalentTo(1)), HaveKeyWithValue("b", BeEquivalentTo(2)))))
			}},
			{"DeleteMessage", func() {
				Expect(state.DeleteMessage(ctx, message.ID)).To(BeTrue())
				Expect(state.DeleteMessage(ctx, message.ID)).To(BeFalse())
			}},
			{"Queue", func() {
				_, err := state.Queue(ctx, runtimev1.NewMessage{Content: "two", Name: "ada"})
				Expect(err).NotTo(HaveOccurred())
				Expect(last(settled(ctx, wire, 2))).To(Equal("echo: two"))
			}},
			{"Send", func() {
				_, err := state.Send(ctx, "three")
				Expect(err).NotTo(HaveOccurred())
				Expect(last(settled(ctx, wire, 3))).To(Equal("echo: three"))
			}},
			{"ModelNames", func() { Expect(state.ModelNames(ctx)).To(Equal([]string{"parent", "worker"})) }},
			{"PromptNames", func() { Expect(state.PromptNames(ctx)).To(Equal([]string{"parent", "worker"})) }},
			{"AgentNames", func() { Expect(state.AgentNames(ctx)).To(Equal([]string{"parent", "worker"})) }},
			{"LoadModel", func() { Expect(state.LoadModel(ctx, "worker")).To(ContainSubstring(`"scripted"`)) }},
			{"LoadPrompt", func() { Expect(state.LoadPrompt(ctx, "worker")).To(ContainSubstring(`"kv"`)) }},
			{"LoadAgent", func() {
				Expect(state.LoadAgent(ctx, "worker")).To(ContainSubstring(`"name":"worker"`))
				_, err := state.LoadAgent(ctx, "none")
				Expect(err).To(kind(runtimeclient.ErrNotFound))
			}},
			{"ParentThread", func() {
				up, err := state.ParentThread(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(up.ParentThread(ctx)).To(BeNil())
				i, err := up.Info(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(i.ThreadID()).To(Equal(info.ThreadID()))
			}},
			{"ChildThread", func() { Expect(state.ChildThread(ctx, "none")).To(BeNil()) }},
			{"NotifyParent", func() {
				Expect(state.NotifyParent(ctx, "still here")).To(Succeed())
				takenIn(ctx, top, Equal("user: still here"))
			}},
			{"SetStatus", func() {
				Expect(state.SetStatus(ctx, "idling")).To(Succeed())
				Eventually(ctx, func(g Gomega) {
					i, err := parent.Info(ctx)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(i.Children()).To(ConsistOf(HaveField("Status", "idling")))
				}).Should(Succeed())
			}},
			{"SetEnv", func() {
				Expect(state.SetEnv(ctx, "REGION", "north", runtimev1.EnvText)).To(Succeed())
				Expect(state.SetEnv(ctx, "TOKEN", "hunter2-is-long-enough", "")).To(Succeed())
				Expect(state.SetEnv(ctx, "no name", "x", "")).To(kind(runtimeclient.ErrInvalid))
			}},
			{"EnvType", func() {
				Expect(state.EnvType(ctx, "REGION")).To(Equal(runtimev1.EnvText))
				Expect(state.EnvType(ctx, "TOKEN")).To(Equal(runtimev1.EnvSecret))
				Expect(state.EnvType(ctx, "NONE")).To(Equal(runtimev1.EnvSecret))
			}},
			{"Env", func() {
				Expect(state.Env(ctx, "REGION")).To(Equal("north"))
				_, err := state.Env(ctx, "TOKEN")
				Expect(err).To(MatchError(runtimeclient.ErrEnvSecret))
				_, err = state.Env(ctx, "NONE")
				Expect(err).To(And(MatchError(runtimeclient.ErrEnvUnknown), kind(runtimeclient.ErrNotFound)))
			}},
			{"InvokeTool", func() {
				Expect(state.InvokeTool(ctx, "set_value", map[string]any{"key": "k", "value": 1})).To(HaveField("Status", runtimev1.ToolSuccess))
			}},
			{"Value", func() {
				Expect(state.Value(ctx, "k")).To(MatchJSON(`1`))
				Expect(state.Value(ctx, "none")).To(BeNil())
			}},
			{"SetValue", func() {
				Expect(state.SetValue(ctx, "k", map[string]int{"n": 2})).To(Succeed())
				Expect(state.Value(ctx, "k")).To(MatchJSON(`{"n":2}`))
				Expect(state.SetValue(ctx, "k", nil)).To(Succeed())
				Expect(state.Value(ctx, "k")).To(BeNil())
			}},
			{"QueueTool", func() {
				Expect(state.QueueTool(ctx, "set_value", map[string]any{"key": "q", "value": true})).To(Succeed())
				_, status := result(settled(ctx, wire, 4), "set_value")
				Expect(status).To(Equal("success"))
			}},
			{"WriteFile", func() {
				Expect(state.WriteFile(ctx, "/data/orders.csv", strings.NewReader("a,b\n1,2\n"), runtimeclient.WriteFileOptions{Metadata: map[string]any{"from": "ada"}})).To(And(
					HaveField("Path", "/data/orders.csv"), HaveField("Size", int64(8)), HaveField("Metadata", MatchJSON(`{"from":"ada"}`))))
			}},
			{"ReadFile", func() {
				file, err := state.ReadFile(ctx, "/data/orders.csv")
				Expect(err).NotTo(HaveOccurred())
				Expect(io.ReadAll(file)).To(BeEquivalentTo("a,b\n1,2\n"))
				Expect(file.Close()).To(Succeed())
				Expect(state.ReadFile(ctx, "/none")).To(BeNil())
			}},
			{"ReadFileStream", func() {
				chunks, err := state.ReadFileStream(ctx, "/data/orders.csv")
				Expect(err).NotTo(HaveOccurred())
				for c, err := range chunks {
					Expect(err).NotTo(HaveOccurred())
					Expect(c).To(Equal(runtimev1.FileChunk{Data: []byte("a,b\n1,2\n"), TotalChunks: 1, IsLast: true}))
				}
				Expect(state.ReadFileStream(ctx, "/none")).To(BeNil())
			}},
			{"StatFile", func() {
				Expect(state.StatFile(ctx, "/data/orders.csv")).To(HaveField("Size", int64(8)))
				Expect(state.StatFile(ctx, "/none")).To(BeNil())
			}},
			{"MakeDir", func() { Expect(state.MakeDir(ctx, "/data/empty")).To(HaveField("IsDirectory", true)) }},
			{"ReadDir", func() {
				Expect(state.ReadDir(ctx, "/data", runtimeclient.Page{})).To(HaveField("Files", HaveExactElements(HaveField("Name", "empty"), HaveField("Name", "orders.csv"))))
			}},
			{"FileStats", func() {
				Expect(state.FileStats(ctx)).To(And(HaveField("FileCount", int64(1)), HaveField("DirectoryCount", int64(2)), HaveField("TotalSize", int64(8))))
			}},
			{"GrepFiles", func() {
				Expect(state.GrepFiles(ctx, "^1", 0)).To(HaveField("Results", ConsistOf(HaveField("Matches", ConsistOf(HaveField("Line", 2))))))
			}},
			{"FindFiles", func() { Expect(state.FindFiles(ctx, "*.csv", 0)).To(HaveField("Paths", ConsistOf("/data/orders.csv"))) }},
			{"Thumbnail", func() {
				Expect(state.Thumbnail(ctx, "/data/orders.csv", runtimeclient.ThumbnailOptions{})).To(BeNil(), "it is no image")
			}},
			{"RemoveDir", func() {
				Expect(state.RemoveDir(ctx, "/data")).To(kind(runtimeclient.ErrInvalid), "it is not empty")
				Expect(state.RemoveDir(ctx, "/data/empty")).To(Succeed())
			}},
			{"Unlink", func() {
				Expect(state.Unlink(ctx, "/data/orders.csv")).To(Succeed())
				Expect(state.Unlink(ctx, "/data/orders.csv")).To(kind(runtimeclient.ErrNotFound))
			}},
			{"ScheduleEffect", func() {
				effect, err = state.ScheduleEffect(ctx, "remind", map[string]any{"to": "ada"}, time.Hour)
				Expect(err).NotTo(HaveOccurred())
				Expect(effect).To(MatchRegexp(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`))
			}},
			{"ScheduledEffects", func() {
				Eventually(ctx, func() ([]runtimev1.Effect, error) { return state.ScheduledEffects(ctx, "remind") }).Should(ConsistOf(And(
					HaveField("ID", effect), HaveField("Args", MatchJSON(`{"to":"ada"}`)))))
				Expect(state.ScheduledEffects(ctx, "other")).To(BeEmpty())
			}},
			{"RemoveScheduledEffect", func() {
				Expect(state.RemoveScheduledEffect(ctx, effect)).To(BeTrue())
				Eventually(ctx, func() (bool, error) { return state.RemoveScheduledEffect(ctx, effect) }).Should(BeFalse())
			}},
			{"Emit", func() {
				Expect(state.Emit(ctx, "progress", 0.5)).To(Succeed())
				log, err := wire.Log(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(log).To(ContainElement(And(HaveField("Type", "event:progress"), HaveField("Data", MatchJSON(`0.5`)))))
			}},
			{"Context", func() {
				state.Context()["scratch"] = 1
				Expect(state.Context()).To(HaveKeyWithValue("scratch", 1))
			}},
			{"NotPackableRuntimeContext", func() { Expect(state.NotPackableRuntimeContext()).To(BeNil()) }},
			{"RunCode", func() {
				var reports []string
				run := state.RunCode(ctx, `report({ at: 1 }); export default (n: number) => n + base;`, runtimeclient.CodeOptions{
					Args: []any{40}, Globals: map[string]any{"base": 2}, Report: func(v json.RawMessage) { reports = append(reports, string(v)) },
				})
				Expect(run.Wait(ctx)).To(And(HaveField("Status", runtimev1.CodeSuccess), HaveField("Result", MatchJSON(`42`))))
				Expect(reports).To(HaveExactElements(MatchJSON(`{"at":1}`)))
				run = state.RunCode(ctx, `for (;;);`, runtimeclient.CodeOptions{})
				run.Terminate("enough")
				Expect(run.Wait(ctx)).To(And(HaveField("Status", runtimev1.CodeTerminated), HaveField("Error.Message", "enough")))
				Expect(run.Running()).To(BeFalse())
			}},
			{"Execution", func() {
				Expect(state.Execution(ctx)).To(BeNil())
				_, err := state.Send(ctx, "wait")
				Expect(err).NotTo(HaveOccurred())
				var x *runtimeclient.Execution
				Eventually(ctx, func() (*runtimeclient.Execution, error) { x, err = state.Execution(ctx); return x, err }).ShouldNot(BeNil())
				Expect(x.FlowID).To(HavePrefix("sess_"))
				Expect(x.CurrentSide).To(Equal("a"))
				Expect(x.Stop(ctx, "enough")).To(Succeed())
				Eventually(ctx, func() (*runtimeclient.Execution, error) { return state.Execution(ctx) }).Should(BeNil())
			}},
			{"Terminate", func() {
				Expect(state.Terminate(ctx)).To(Succeed())
				Expect(state.Terminate(ctx)).To(Succeed(), "again is no error")
				Expect(fresh().Terminated()).To(HaveValue(BeNumerically(">", fresh().CreatedAt())))
				_, err := state.Send(ctx, "more")
				Expect(err).To(kind(runtimeclient.ErrTerminated))
				Expect(state.Messages(ctx, runtimeclient.MessageOptions{})).To(HaveField("Messages", Not(BeEmpty())), "it can still be read")
				Eventually(ctx, func(g Gomega) {
					i, err := parent.Info(ctx)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(i.Children()).To(ConsistOf(HaveField("Status", "terminated")))
				}).Should(Succeed())
			}},
		}
		used := map[string]bool{}
		for _, m := range members {
			By(m.name)
			m.use()
			used[m.name] = true
		}
		for m := range reflect.TypeFor[runtimeclient.ThreadState]().Methods() {
			Expect(used).To(HaveKey(m.Name), "this program must use every member of ThreadState")
		}
	}, SpecTimeout(4*time.Minute))
})
