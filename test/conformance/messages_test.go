package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Messages", func() {
	It("have the fields of the record", Label("MSG-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		steps := []skeinv1.ScriptStep{
			harness.On("write", harness.Calls("write_file", map[string]any{"path": "/a.txt", "content": "hi"})),
			harness.After("write_file", harness.Answer("written")),
		}
		t := converse(ctx, ns, []string{"builtin:files"}, steps)
		Expect(t.WriteFile(ctx, "/in.csv", "text/csv", []byte("a,b\n"))).To(Succeed())
		before := time.Now().Add(-time.Second).UnixMicro()
		_, err := t.Queue(ctx, runtimev1.NewMessage{Content: "write", Name: "ada", Metadata: map[string]any{"k": "v"}, Attachments: []runtimev1.Attachment{{Path: "/in.csv"}}})
		Expect(err).NotTo(HaveOccurred())
		ms := settled(ctx, t, 1)
		Expect(ms).To(HaveLen(4), "%v", texts(ms))
		user, call, res, answer := ms[0], ms[1], ms[2], ms[3]

		Expect(user.Role).To(Equal("user"))
		Expect(user.Name).To(Equal("ada"))
		Expect(user.Metadata).To(HaveKeyWithValue("k", "v"))
		Expect(user.Metadata).NotTo(HaveKey("queued"), "it was taken")
		Expect(user.Attachments).To(ConsistOf(And(HaveField("Path", "/in.csv"), HaveField("Size", int64(4)))))
		Expect(call.Role).To(Equal("assistant"))
		Expect(call.Content).To(BeNil())
		Expect(call.ToolCalls).To(HaveLen(1))
		Expect(call.ToolCalls[0].Name).To(Equal("write_file"))
		Expect(call.ToolCalls[0].Arguments).To(MatchJSON(`{"path":"/a.txt","content":"hi"}`))
		Expect(res.Role).To(Equal("tool"))
		Expect(res.Name).To(Equal("write_file"))
		Expect(res.ToolCallID).To(Equal(call.ToolCalls[0].ID))
		Expect(res.ToolStatus).To(Equal("success"))
		Expect(text(answer)).To(Equal("assistant: written"))
		ids := map[string]bool{}
		for i, m := range ms {
			Expect(m.ID).NotTo(BeEmpty())
			ids[m.ID] = true
			Expect(m.CreatedAt).To(BeNumerically(">=", before))
			Expect(m.Status).To(Equal(runtimev1.MessageCompleted))
			if i > 0 {
				Expect(m.RunID).To(HavePrefix("sess_"))
			}
		}
		Expect(ids).To(HaveLen(4))
	}, SpecTimeout(2*time.Minute))

	It("are injected without starting execution", Label("MSG-04"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		m, err := t.Inject(ctx, runtimev1.NewMessage{Role: "system", Content: "context", Silent: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Silent).To(BeTrue())
		_, err = t.Inject(ctx, runtimev1.NewMessage{Role: "user", Content: "not to be answered"})
		Expect(err).NotTo(HaveOccurred())
		page, err := t.Page(ctx, "limit=10")
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(page.Messages)).To(Equal([]string{"user: not to be answered"}), "silent messages are left out unless asked for")

		// A message that does start a run shows that the injected ones had not: there is one run only.
		ms := say(ctx, t, 1, "go")
		Expect(texts(ms)).To(Equal([]string{"system: context", "user: not to be answered", "user: go", "assistant: echo: go"}))
		Expect(t.Runs(ctx)).To(HaveLen(1))
	}, SpecTimeout(2*time.Minute))

	It("are queued durably, seen before the next step, and survive a crash", Label("MSG-05"), Serial, func(ctx SpecContext) {
		ns := namespace(ctx)
		model := newGate(func(w http.ResponseWriter, req harness.ChatRequest, last string) {
			switch last {
			case "user start":
				harness.CallTool(w, req.Model, fmt.Sprint("call_", len(req.Messages)), "list_files", "{}")
			case "user late", "user parked":
				harness.Say(w, req.Model, "saw the "+strings.TrimPrefix(last, "user ")+" message")
			default:
				harness.Say(w, req.Model, "did not see it")
			}
		})
		t := converseWith(ctx, ns, model.model(ns, "model"), []string{"builtin:files"})
		Expect(t.Say(ctx, "start")).To(Succeed())
		Eventually(ctx, model.asked.Load).Should(BeEquivalentTo(1))
		Expect(t.Runs(ctx)).To(ContainElement(HaveField("Status", "running")))
		_, err := t.Queue(ctx, runtimev1.NewMessage{Content: "late"})
		Expect(err).NotTo(HaveOccurred())
		ms, err := t.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		waiting := ms[len(ms)-1]
		Expect(text(waiting)).To(Equal("user: late"))
		Expect(waiting.Status).To(Equal(runtimev1.MessagePending))
		Expect(waiting.Metadata).To(HaveKeyWithValue("queued", true))
		model.open()
		Expect(last(settled(ctx, t, 1))).To(Equal("saw the late message"))
		Expect(t.Runs(ctx)).To(HaveLen(1), "the running thread took it, no second run was made")

		model.shut()
		Expect(t.Say(ctx, "start")).To(Succeed())
		Eventually(ctx, model.asked.Load).Should(BeEquivalentTo(1))
		Expect(t.Say(ctx, "parked")).To(Succeed())
		manager.Kill()
		model.open()
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			ms, err := t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text(ms[len(ms)-1])).To(Equal("assistant: saw the parked message"))
		}).Should(Succeed())
	}, SpecTimeout(3*time.Minute))

	It("are refused with what to do when they are wrong", Label("MSG-04", "MSG-05"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		_, err := t.Queue(ctx, runtimev1.NewMessage{Role: "robot", Content: "x"})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("role")))
		_, err = t.Queue(ctx, runtimev1.NewMessage{Content: "x", Attachments: []runtimev1.Attachment{{Path: "/nowhere"}}})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("/nowhere")))
		_, err = t.Queue(ctx, runtimev1.NewMessage{Content: strings.Repeat("x", runtimev1.MaxContentBytes+1)})
		Expect(err).To(HaveOccurred())
		_, err = t.Page(ctx, "limit=many")
		Expect(err).To(MatchError(ContainSubstring("limit")))
		Expect(t.Messages(ctx)).To(BeEmpty())
		_, err = cluster.Thread(t.Namespace, "nobody").Messages(ctx)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(2*time.Minute))
})
