package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/related"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// keyed takes every compaction, handoff and call of a tool.
type keyed struct{ *recordingEngine }

func (keyed) Compact(context.Context, string, string, string) (string, error) {
	return "request", nil
}

func (keyed) HandOff(context.Context, string, related.Handoff) (*related.Made, error) {
	return &related.Made{Thread: &store.Thread{ID: "new"}, Name: "new"}, nil
}

func (keyed) QueueTool(context.Context, string, string, string, json.RawMessage) error {
	return nil
}

var _ = Describe("The idempotency key of a body", Label("MSG-10"), func() {
	DescribeTable("takes a repeat, and refuses another body", func(ctx SpecContext, path, body, same string, others []string) {
		e := newEnv(func(o *Options) { o.Engine = keyed{o.Engine.(*recordingEngine)} })
		st, _ := e.thread("origin")
		for _, text := range []string{"one", "two", "three"} {
			_, err := st.Inject(ctx, thread.NewMessage{Content: ptr.To(text)})
			Expect(err).NotTo(HaveOccurred())
		}
		run := store.Run{ID: "sess_1", Agent: "helper", Status: store.RunSucceeded}
		Expect(st.Apply(ctx, &store.PutRun{Run: run})).To(Succeed())
		for _, m := range []store.Message{{ID: "u", Role: store.RoleUser}, {ID: "a", Role: store.RoleAssistant}} {
			m.RunID, m.Content, m.Status = run.ID, ptr.To("x"), store.MessageCompleted
			Expect(st.Apply(ctx, &store.AppendMessage{Message: &m})).To(Succeed())
		}
		send := func(path, body, key string) (int, string) {
			GinkgoHelper()
			if key != "" {
				body = strings.Replace(body, "{", `{"idempotencyKey":"`+key+`",`, 1)
				body = strings.Replace(body, ",}", "}", 1)
			}
			res, text := e.do(http.MethodPost, at("origin", path), strings.NewReader(body))
			return res.StatusCode, text
		}
		_, first := send(path, body, "k")
		Expect(first).NotTo(ContainSubstring("Failure"))
		for _, again := range []string{body, same} {
			_, text := send(path, again, "k")
			Expect(text).NotTo(ContainSubstring("Failure"), again)
		}
		for i, other := range others {
			at, text := path, other
			if p, rest, ok := strings.Cut(other, " "); ok && strings.HasPrefix(p, "/") {
				at, text = p, rest
			}
			code, answer := send(at, text, "k")
			Expect(code).To(Equal(http.StatusUnprocessableEntity), other+answer)
			Expect(answer).To(ContainSubstring("this key was used for another request"), other)
			_, answer = send(at, text, fmt.Sprint("another-", i))
			Expect(answer).NotTo(ContainSubstring("Failure"), other)
		}
		s := e.status(http.MethodPost, at("origin", path), others[0], runtimev1.HeaderIdempotencyKey, "k")
		Expect(s.Reason).To(Equal(metav1.StatusReasonInvalid), "the key of a body is used for a header too")
	},
		Entry("fork", "/fork", `{"messageIndex":1,"title":"t"}`, `{"title":"t", "messageIndex":1}`,
			[]string{`{"messageIndex":0,"title":"t"}`, `{"messageIndex":1}`, `{"messageIndex":1,"title":"t","message":"go"}`, `/runs/sess_1/rerun {"step":1,"title":"t"}`}),
		Entry("rerun", "/runs/sess_1/rerun", `{"step":1,"input":"x"}`, `{"input":"x","step":1}`, []string{`{"step":1,"input":"y"}`, `{"step":1}`, `/fork {"title":"x"}`}),
		Entry("handoff", "/handoff", `{"goal":"g","files":["/b","/a"]}`, `{"goal":"g","files":["/a","/b"]}`, []string{`{"goal":"h","files":["/a","/b"]}`, `{"goal":"g"}`, `{"goal":"g","files":["/a","/b"],"agent":"helper"}`}),
		Entry("effects", "/effects", `{"name":"remind","args":{"a":1,"b":2},"delay":5}`, `{"delay":5,"name":"remind","args":{ "b":2, "a":1 }}`,
			[]string{`{"name":"remind","args":{"a":1,"b":3},"delay":5}`, `{"name":"forget","args":{"a":1,"b":2},"delay":5}`, `{"name":"remind","args":{"a":1,"b":2},"delay":6}`}),
		Entry("tools", "/tools/t", `{"mode":"queue","arguments":{"n":12345678901234567890}}`, `{"arguments":{ "n":12345678901234567890 },"mode":"queue"}`,
			[]string{`{"mode":"queue","arguments":{"n":12345678901234567891}}`, `/tools/u {"mode":"queue","arguments":{"n":12345678901234567890}}`}),
		Entry("compact", "/compact", `{"side":"a"}`, `{ "side":"a"}`, []string{`{"side":"b"}`}),
	)

	It("goes with an expected version, and with a thread that has ended", func(ctx SpecContext) {
		e := newEnv()
		st, c := e.thread("origin")
		_, err := st.Inject(ctx, thread.NewMessage{Content: ptr.To("one")})
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Terminate(ctx, "done")).To(Succeed())
		row, err := st.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		fork, err := c.Expecting(row.Version).Fork(ctx, runtimev1.NewFork{IdempotencyKey: "k"})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Fork(ctx, runtimev1.NewFork{IdempotencyKey: "k"})).To(HaveField("Name", fork.Name))
	})
})
