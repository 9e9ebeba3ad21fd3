package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// export gives the lines of a conversation.
func export(ctx context.Context, t *harness.Thread) []byte {
	GinkgoHelper()
	rc, err := api().Thread(t.Namespace, t.Name).Export(ctx)
	Expect(err).NotTo(HaveOccurred())
	defer rc.Close()
	data, err := io.ReadAll(rc)
	Expect(err).NotTo(HaveOccurred())
	return data
}

func linesOf(data []byte) (lines []map[string]any) {
	GinkgoHelper()
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		var line map[string]any
		Expect(json.Unmarshal(s.Bytes(), &line)).To(Succeed(), s.Text())
		lines = append(lines, line)
	}
	return lines
}

var _ = Describe("The log", func() {
	It("is exported as lines, and imported to the same", Label("LOG-01", "LOG-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, []string{"builtin:files"}, []skeinv1.ScriptStep{
			harness.On("go", skeinv1.ScriptStep{Content: "I will look", ToolCalls: []skeinv1.ScriptToolCall{{Name: "list_files", Arguments: harness.Raw(map[string]any{"path": "/"})}}}),
			harness.After("list_files", harness.Answer("there are none")),
		}, func(s *skeinv1.ThreadSpec) { s.TaskID, s.Title = "task-7", "Files <of> \"mine\"" })
		say(ctx, t, 1, "go & see")
		first := export(ctx, t)
		lines := linesOf(first)
		Expect(lines).To(HaveLen(6), "%s", first)
		Expect(lines[0]).To(And(HaveKeyWithValue("agentId", "agent"), HaveKeyWithValue("taskId", "task-7"), HaveKeyWithValue("title", `Files <of> "mine"`),
			Not(HaveKey("sessionId")), HaveKey("createdAt"), HaveKey("updatedAt"), Not(HaveKey("type"))))
		Expect(lines[1]).To(And(HaveKeyWithValue("type", "message"), HaveKeyWithValue("role", "user"), HaveKeyWithValue("text", "go & see")))
		Expect(lines[2]).To(And(HaveKeyWithValue("type", "assistant_text"), HaveKeyWithValue("text", "I will look")))
		Expect(lines[3]).To(And(HaveKeyWithValue("type", "tool_use"), HaveKeyWithValue("name", "list_files"), HaveKeyWithValue("input", HaveKeyWithValue("path", "/"))))
		Expect(lines[4]).To(And(HaveKeyWithValue("type", "message"), HaveKeyWithValue("role", "assistant"), HaveKeyWithValue("text", "there are none")))
		Expect(lines[5]).To(And(HaveKeyWithValue("type", "result"), HaveKeyWithValue("turns", 2.0), HaveKey("durationMs")))
		for _, l := range lines[1:] {
			_, err := time.Parse(time.RFC3339Nano, l["timestamp"].(string))
			Expect(err).NotTo(HaveOccurred())
		}

		create(ctx, harness.NewThread(ns, "copy", "agent"))
		copied := ready(ctx, cluster.Thread(ns, "copy"))
		res, err := api().Thread(ns, "copy").Import(ctx, bytes.NewReader(first))
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Messages).To(BeEquivalentTo(2))
		Expect(res.Events).To(BeEquivalentTo(3))
		Expect(string(export(ctx, copied))).To(Equal(string(first)), "export of an import is the same")
		Expect(copied.Runs(ctx)).To(BeEmpty(), "an import runs nothing")
		_, err = api().Thread(ns, "copy").Import(ctx, bytes.NewReader(first))
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(last(say(ctx, copied, 1, "go"))).To(Equal("there are none"), "the conversation goes on")
	}, SpecTimeout(3*time.Minute))

	It("names the provider's conversation that the next run goes on with, which an import restores", Label("LOG-01", "LOG-02", "RUN-05", "RUN-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		tells := skeinv1.ScriptStep{Content: "{{ .Session }}/{{ .NewMessages }}", Times: ptr.To[int32](0)}
		m := harness.Scripted(ns, "model", skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "fail"}, Error: "out of order", Times: ptr.To[int32](0)}, tells)
		m.Spec.Sessions = ptr.To(true)
		t := converseWith(ctx, ns, m, nil)
		say(ctx, t, 1, "one")
		Expect(linesOf(export(ctx, t))[0]).To(HaveKeyWithValue("sessionId", "session-3"))
		Expect(t.Say(ctx, "fail")).To(Succeed())
		settled(ctx, t, 2)
		first := export(ctx, t)
		Expect(linesOf(first)[0]).To(HaveKeyWithValue("sessionId", "session-3"), "a run that fails keeps it")

		create(ctx, harness.NewThread(ns, "copy", "agent"))
		copied := ready(ctx, cluster.Thread(ns, "copy"))
		_, err := api().Thread(ns, "copy").Import(ctx, bytes.NewReader(first))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(export(ctx, copied))).To(Equal(string(first)))
		for run, th := range map[int]*harness.Thread{3: t, 1: copied} {
			Expect(last(say(ctx, th, run, "two"))).To(Equal("session-3/3"), th.Name)
		}
	}, SpecTimeout(3*time.Minute))

	It("enters a thread without an agent, and one that was destroyed", Label("LOG-02", "THR-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		const lines = `{"agentId":"agent","createdAt":"2026-01-01T00:00:00Z"}
{"role":"user","text":"hello","timestamp":"2026-01-01T00:00:01Z"}
{"role":"assistant","text":"good day","timestamp":"2026-01-01T00:00:02Z"}
`
		create(ctx, harness.NewThread(ns, "early", "agent"))
		early := api().Thread(ns, "early")
		Eventually(ctx, func() error { _, err := early.Import(ctx, strings.NewReader(lines)); return err }).Should(Succeed(), "once it is stored")
		imported := export(ctx, cluster.Thread(ns, "early"))
		_, err := early.Import(ctx, strings.NewReader(lines))
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)

		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "gone")
		wire := api().Thread(ns, "thread")
		_, err = wire.Import(ctx, strings.NewReader(lines))
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		for range 2 { // also what an import brought
			_, err = wire.Destroy(ctx)
			Expect(err).NotTo(HaveOccurred())
			_, err = wire.Import(ctx, strings.NewReader(lines))
			Expect(err).NotTo(HaveOccurred())
			Expect(string(export(ctx, t))).To(Equal(string(imported)))
		}
		Expect(last(say(ctx, ready(ctx, cluster.Thread(ns, "early")), 1, "on"))).To(Equal("echo: on"), "its agent is there now")
		Expect(last(say(ctx, t, 2, "on"))).To(Equal("echo: on"))
	}, SpecTimeout(3*time.Minute))

	It("leaves and enters with kubectl, byte for byte", Label("LOG-01", "LOG-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, []string{"builtin:files"}, []skeinv1.ScriptStep{
			harness.On("go", skeinv1.ScriptStep{Content: "I will look", ToolCalls: []skeinv1.ScriptToolCall{{Name: "list_files", Arguments: harness.Raw(map[string]any{"path": "/"})}}}),
			harness.After("list_files", harness.Answer("there are none")),
		})
		say(ctx, t, 1, "go <there> & back: ü")
		dir := GinkgoT().TempDir()
		exported := func(name string) []byte {
			GinkgoHelper()
			file := filepath.Join(dir, name+".jsonl")
			Expect(cluster.Plugin(ctx, "-n", ns, "export", name, "-o", file)).To(BeEmpty())
			data, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			return data
		}
		first := exported("thread")
		Expect(first).To(Equal(export(ctx, t)))
		Expect(linesOf(first)).To(HaveLen(6), "%s", first)

		create(ctx, harness.NewThread(ns, "there", "agent"))
		ready(ctx, cluster.Thread(ns, "there"))
		file := filepath.Join(dir, "thread.jsonl")
		Expect(cluster.Plugin(ctx, "-n", ns, "import", file, "--thread", "there")).To(Equal("thread/there imported: messages 2, other lines 3\n"))
		Expect(string(exported("there"))).To(Equal(string(first)))
		_, err := cluster.Plugin(ctx, "-n", ns, "import", file, "--thread", "there")
		Expect(err).To(MatchError(ContainSubstring("Conflict")), "it is not empty any more")

		Expect(cluster.Plugin(ctx, "-n", ns, "import", file, "--agent", "agent", "--name", "made")).To(Equal("thread/made imported: messages 2, other lines 3\n"))
		Expect(string(exported("made"))).To(Equal(string(first)))

		broken := filepath.Join(dir, "broken.jsonl")
		Expect(os.WriteFile(broken, bytes.Replace(first, []byte(`"role":"assistant"`), []byte(`"role":"parrot"`), 1), 0o600)).To(Succeed())
		_, err = cluster.Plugin(ctx, "-n", ns, "import", broken, "--agent", "agent", "--name", "never")
		Expect(err).To(MatchError(ContainSubstring("line 5: the role of a message is user, assistant or system")))
		Eventually(ctx, func() error {
			return cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "never"}, &skeinv1.Thread{})
		}).Should(Satisfy(apierrors.IsNotFound), "the thread that was made goes again")

		_, err = api().Thread(ns, "thread").Destroy(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(linesOf(exported("thread"))).To(HaveLen(1), "nothing of what was destroyed is exported")
	}, SpecTimeout(3*time.Minute))

	It("is imported from older forms, and refused with the line that is wrong", Label("LOG-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		c := api().Thread(ns, t.Name)
		legacy := `{"agentId":"agent","channel":"telegram","title":"Old","createdAt":"2024-05-01T10:00:00.000Z","updatedAt":"2024-05-01T10:05:00.000Z"}
{"role":"user","text":"hi","timestamp":"2024-05-01T10:00:01.000Z"}
{"type":"message","role":"assistant","text":"hello","timestamp":"2024-05-01T10:00:02.000Z"}
{"type":"result","cost":0.01,"inputTokens":5,"timestamp":"2024-05-01T10:00:03.000Z"}
`
		for wrong, line := range map[string]string{
			strings.Replace(legacy, `"type":"message"`, `"type":"dance"`, 1):              "line 3",
			strings.Replace(legacy, `{"role":"user"`, `{"role":"user"`+"\x00", 1):         "line 2",
			strings.Replace(legacy, `2024-05-01T10:00:03.000Z`, `yesterday`, 1):           "line 4",
			strings.Replace(legacy, `"role":"assistant","text":"hello",`, `"text":1,`, 1): "line 3",
			legacy + "{": "line 5", "": "line 1", legacy[strings.Index(legacy, "\n")+1:]: "line 1",
		} {
			_, err := c.Import(ctx, strings.NewReader(wrong))
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(line)), wrong)
		}
		Expect(t.Messages(ctx)).To(BeEmpty(), "a failed import leaves nothing")
		_, err := c.Import(ctx, strings.NewReader(legacy))
		Expect(err).NotTo(HaveOccurred())
		ms, err := t.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(ms)).To(Equal([]string{"user: hi", "assistant: hello"}))
		once := strings.NewReplacer(`"channel":"telegram",`, "", `{"role":"user"`, `{"type":"message","role":"user"`).Replace(legacy)
		Expect(string(export(ctx, t))).To(Equal(once))
	}, SpecTimeout(2*time.Minute))

	It("only grows: edits and deletions are entries of it", Label("LOG-03"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		kept, err := t.Inject(ctx, runtimev1.NewMessage{Role: "user", Content: "first"})
		Expect(err).NotTo(HaveOccurred())
		gone, err := t.Inject(ctx, runtimev1.NewMessage{Role: "user", Content: "second"})
		Expect(err).NotTo(HaveOccurred())
		before, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Request("PATCH", "messages/"+kept.ID).SetHeader("Content-Type", "application/json").Body([]byte(`{"content":"edited"}`)).Do(ctx).Error()).To(Succeed())
		Expect(t.Request("DELETE", "messages/"+gone.ID).Do(ctx).Error()).To(Succeed())
		after, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(after).To(HaveLen(len(before) + 2))
		for i := range before {
			Expect(after[i].Seq).To(Equal(before[i].Seq))
			Expect(after[i].Type).To(Equal(before[i].Type))
			Expect(after[i].MessageID).To(Equal(before[i].MessageID))
		}
		Expect(after[len(before)]).To(And(HaveField("Type", runtimev1.EventMessageUpdated), HaveField("MessageID", kept.ID)))
		Expect(after[len(before)+1]).To(And(HaveField("Type", runtimev1.EventMessageDeleted), HaveField("MessageID", gone.ID)))
		Expect(string(export(ctx, t))).To(And(ContainSubstring("edited"), Not(ContainSubstring("second"))), "the export is what the conversation is now")
	}, SpecTimeout(2*time.Minute))

	It("sums usage by thread, subtree, agent and namespace, deleted threads included", Label("LOG-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			harness.Say(w, req.Model, "counted")
		})
		DeferCleanup(server.Close)
		create(ctx,
			harness.OpenAI(ns, "child-model", server.URL, ""), harness.Prompt(ns, "child-prompt", "child-model"), harness.Agent(ns, "child-agent", "child-prompt"),
			harness.Scripted(ns, "model", harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "count"})),
				harness.After("subagent_create", harness.Answer("done"))),
			harness.Prompt(ns, "prompt", "model", "builtin:subagents"),
			harness.Agent(ns, "agent", "prompt", func(a *skeinv1.AgentSpec) {
				a.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child-agent"}, Blocking: true}}
			}),
			harness.NewThread(ns, "thread", "agent"),
		)
		t := ready(ctx, cluster.Thread(ns, "thread"))
		say(ctx, t, 1, "go")
		c := api()
		tree, err := c.Thread(ns, "thread").Usage(ctx, true)
		Expect(err).NotTo(HaveOccurred())
		own, err := c.Thread(ns, "thread").Usage(ctx, false)
		Expect(err).NotTo(HaveOccurred())
		Expect(own).To(HaveValue(And(HaveField("Runs", int64(1)), HaveField("Turns", int64(2)), HaveField("Threads", int64(1)))))
		Expect(tree).To(HaveValue(And(HaveField("Runs", int64(2)), HaveField("Threads", int64(2)), HaveField("InputTokens", own.InputTokens+10), HaveField("OutputTokens", own.OutputTokens+5))))
		Expect(c.Usage(ctx, ns, "child-agent")).To(HaveValue(And(HaveField("Runs", int64(1)), HaveField("InputTokens", int64(10)))))
		Expect(c.Usage(ctx, ns, "")).To(HaveField("InputTokens", tree.InputTokens))
		Expect(t.Delete(ctx)).To(Succeed())
		Eventually(ctx, func() error {
			return cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "thread"}, &skeinv1.Thread{})
		}).Should(Satisfy(apierrors.IsNotFound))
		Eventually(ctx, func() (*runtimev1.Usage, error) { return c.Usage(ctx, ns, "") }).Should(And(HaveField("InputTokens", tree.InputTokens), HaveField("Runs", int64(2))))
	}, SpecTimeout(3*time.Minute))
})
