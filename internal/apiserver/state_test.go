package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("state", Label("STA-02", "STA-03", "STA-04", "STA-05"), func() {
	It("is read and changed, key by key and in batches", func(ctx SpecContext) {
		_, t := newEnv().thread("hello")
		Expect(t.SetState(ctx, "a/b", map[string]any{"x": nil})).To(Succeed())
		Expect(t.SetState(ctx, "none", nil)).To(Succeed())
		Expect(t.ChangeState(ctx,
			runtimev1.StateOperation{Op: "push", Key: "list", Value: json.RawMessage(`1`)},
			runtimev1.StateOperation{Op: "push", Key: "list", Value: json.RawMessage(`{ "y" : 2 }`), Max: 1},
			runtimev1.StateOperation{Op: "delete", Key: "missing"},
		)).To(Succeed())
		list, err := t.State(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Entries).To(HaveExactElements(
			runtimev1.StateEntry{Key: "a/b", Value: json.RawMessage(`{"x":null}`)},
			runtimev1.StateEntry{Key: "none", Value: json.RawMessage(`null`)},
			runtimev1.StateEntry{Key: "list", Value: json.RawMessage(`[{"y":2}]`)}))
		Expect(list.Bytes).To(BeEquivalentTo(len(`{"a/b":{"x":null},"none":null,"list":[{"y":2}]}`)))
		page, err := t.State(ctx, runtimeclient.Page{Limit: 1, Offset: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Entries).To(HaveExactElements(HaveField("Key", "none")))
		Expect(page.HasMore).To(BeTrue())
		v, ok, err := t.StateValue(ctx, "none")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeTrue())
		Expect(v).To(MatchJSON(`null`))
		_, ok, err = t.StateValue(ctx, "nobody")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeFalse())
		Expect(t.DeleteState(ctx, "none")).To(Succeed())
		Expect(t.ClearState(ctx)).To(Succeed())
		Expect(t.State(ctx, runtimeclient.Page{})).To(HaveField("Total", int64(0)))
	})

	It("is refused with what to do when it is wrong, and nothing of the batch is kept", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		Expect(t.SetState(ctx, "text", "x")).To(Succeed())
		err := t.ChangeState(ctx, runtimev1.StateOperation{Op: "set", Key: "kept", Value: json.RawMessage(`1`)}, runtimev1.StateOperation{Op: "push", Key: "text", Value: json.RawMessage(`1`)})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("not an array")))
		big := strings.Repeat("x", 600_000)
		Expect(t.SetState(ctx, "big", big)).To(Succeed())
		err = t.SetState(ctx, "more", big)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring("1048576"), ContainSubstring("files"))))
		Expect(t.State(ctx, runtimeclient.Page{})).To(HaveField("Total", int64(2)))
		for body, code := range map[string]int{
			`{"ops":[]}`: 400, `{"ops":[{"op":"jump","key":"k"}]}`: 422, `{"ops":[{"op":"set","key":""}]}`: 422, `{"ops":[{"op":"set","key":"k"}]}`: 422,
			`{"ops":[{"op":"set","key":"k","value":1,"max":3}]}`: 422, `{"ops":[{"op":"clear","key":"k"}]}`: 422, `{"ops":1}`: 422, ``: 400,
		} {
			Expect(e.status("POST", at("hello", "/state"), body).Code).To(BeEquivalentTo(code), body)
		}
		Expect(e.status("PUT", at("hello", "/state/k"), `{not json`).Code).To(BeEquivalentTo(422))
		Expect(e.status("GET", at("hello", "/state?limit=0"), "").Code).To(BeEquivalentTo(422))
	})
})

var _ = Describe("the key-value service", Label("STA-07"), func() {
	It("gives {exists, data} and forgets what has expired", func(ctx SpecContext) {
		e := newEnv()
		kv := e.client().KV("ns", "conversations")
		Expect(kv.Get(ctx, "k")).To(HaveField("Exists", false))
		Expect(kv.Set(ctx, "k/1", []int{1, 2}, 0)).To(Succeed())
		Expect(kv.Set(ctx, "soon", nil, time.Hour)).To(Succeed())
		got, err := kv.Get(ctx, "k/1")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Data).To(MatchJSON(`[1,2]`))
		Expect(got.ExpiresAt).To(BeZero())
		got, err = kv.Get(ctx, "soon")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Exists).To(BeTrue())
		Expect(time.UnixMicro(got.ExpiresAt)).To(BeTemporally("~", time.Now().Add(time.Hour), time.Minute))
		Expect(e.svc.Store().SetKV(ctx, store.Namespace{Name: "ns"}, "conversations", store.KVEntry{Key: "old", Value: json.RawMessage(`1`), ExpiresAt: 1})).To(Succeed())
		Expect(kv.Get(ctx, "old")).To(HaveField("Exists", false))
		Expect(kv.Keys(ctx, runtimeclient.KeyOptions{})).To(HaveField("Keys", []string{"k/1", "soon"}))
		Expect(kv.Keys(ctx, runtimeclient.KeyOptions{Limit: 1})).To(HaveField("HasMore", true))
		Expect(e.client().KV("other", "conversations").Get(ctx, "k/1")).To(HaveField("Exists", false))
		Expect(e.client().KV("ns", "others").Get(ctx, "k/1")).To(HaveField("Exists", false))
		Expect(kv.Delete(ctx, "soon")).To(BeTrue())
		Expect(kv.Delete(ctx, "soon")).To(BeFalse())
		const base = "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/kvstores/"
		Expect(e.status("PUT", base+"s/values/k?ttl=-1", "1").Code).To(BeEquivalentTo(422))
		Expect(e.status("PUT", base+"s/values/k", "{").Code).To(BeEquivalentTo(422))
		Expect(e.status("PUT", base+"s/values/k", "").Code).To(BeEquivalentTo(400))
		Expect(e.status("PUT", base+"-s/values/k", "1").Code).To(BeEquivalentTo(422))
		Expect(e.status("PUT", base+"s/values/"+strings.Repeat("k", 600), "1").Code).To(BeEquivalentTo(422))
		bob := e.as("bob", "get kvstores/values ns/s")
		_, err = bob.KV("ns", "s").Get(ctx, "k")
		Expect(err).NotTo(HaveOccurred())
		Expect(apierrors.IsForbidden(bob.KV("ns", "s").Set(ctx, "k", 1, 0))).To(BeTrue())
	})
})

var _ = Describe("keys of values", Label("KVS-01"), func() {
	It("are listed by page", func(ctx SpecContext) {
		_, t := newEnv().thread("hello")
		for i := range 3 {
			Expect(t.SetValue(ctx, fmt.Sprint("k", i), i)).To(Succeed())
		}
		page, err := t.Keys(ctx, runtimeclient.KeyOptions{Limit: 2})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Keys).To(Equal([]string{"k0", "k1"}))
		Expect(page.HasMore).To(BeTrue())
		Expect(t.Keys(ctx, runtimeclient.KeyOptions{After: "k1"})).To(And(HaveField("Keys", []string{"k2"}), HaveField("HasMore", false)))
	})
})

var _ = Describe("the lifecycle feed", Label("STA-06"), func() {
	It("is followed, and resumed where it was left", func(ctx SpecContext) {
		e := newEnv()
		st, _ := e.thread("hello")
		var seen []string
		read := func(o runtimeclient.LifecycleOptions, until int) (last string) {
			GinkgoHelper()
			seen = nil
			for ev, err := range e.client().Lifecycle(ctx, "ns", o) {
				Expect(err).NotTo(HaveOccurred())
				seen = append(seen, ev.ThreadName+" "+ev.Type+" "+ev.Reason)
				if last = ev.Cursor; len(seen) == until {
					break
				}
			}
			return last
		}
		cursor := read(runtimeclient.LifecycleOptions{}, 1)
		Expect(seen).To(Equal([]string{"hello thread.created "}))
		done := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(done)
			read(runtimeclient.LifecycleOptions{After: cursor}, 3)
		}()
		Expect(st.Apply(ctx, &store.PutRun{Run: store.Run{ID: "sess_1", Agent: "helper", Status: store.RunRunning}})).To(Succeed())
		Expect(st.Apply(ctx, &store.PutRun{Run: store.Run{ID: "sess_1", Agent: "helper", Status: store.RunSucceeded}})).To(Succeed())
		Expect(e.svc.Purge(ctx, st.ID())).To(Succeed())
		Eventually(done).Should(BeClosed())
		Expect(seen).To(Equal([]string{"hello session.started ", "hello session.completed succeeded", "hello thread.destroyed deleted"}))
		read(runtimeclient.LifecycleOptions{NoFollow: true}, 0)
		Expect(seen).To(HaveLen(4))
		Expect(e.status("GET", "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/lifecycle?after=x", "").Code).To(BeEquivalentTo(422))
		Expect(e.status("GET", "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/lifecycle?watch=true&after=1.x", "").Code).To(BeEquivalentTo(422))
		for _, err := range e.as("bob", "list lifecycle/ ns/").Lifecycle(ctx, "ns", runtimeclient.LifecycleOptions{}) {
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "watching is a right of its own: %v", err)
		}
	})

	It("counts its streams, and tells a client that reads too slowly and one whose server stops", Label("EVT-02"), func(ctx SpecContext) {
		for want, set := range map[string]func(*Options){
			runtimev1.ClosedTooSlow:        func(o *Options) { o.slowClient = time.Nanosecond },
			runtimev1.ClosedServerStopping: func(*Options) {},
		} {
			e := newEnv(set)
			Eventually(openMetric).Should(BeZero(), "those of earlier specs")
			ended := closedMetric(want)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+"/apis/runtime.skein.dev/v1alpha1/namespaces/ns/lifecycle?watch=true&after=latest", nil)
			Expect(err).NotTo(HaveOccurred())
			req.Header.Set("Authorization", "Bearer alice")
			resp, err := e.http.Do(req)
			Expect(err).NotTo(HaveOccurred())
			defer resp.Body.Close()
			r := bufio.NewReader(resp.Body)
			Eventually(openMetric).Should(BeEquivalentTo(1))
			e.thread("hello")
			Expect(nextData(r)).To(ContainSubstring(`"type":"thread.created"`))
			if want == runtimev1.ClosedServerStopping {
				e.stop()
			}
			Expect(nextData(r)).To(And(ContainSubstring(`"reason":"`+want+`"`), ContainSubstring("connect again with the cursor of your last event")))
			Eventually(openMetric).Should(BeZero())
			Expect(closedMetric(want)).To(Equal(ended + 1))
		}
	}, SpecTimeout(2*patience))
})

var _ = Describe("export and import", Label("LOG-01", "LOG-02"), func() {
	export := func(ctx context.Context, t *runtimeclient.Thread) string {
		GinkgoHelper()
		rc, err := t.Export(ctx)
		Expect(err).NotTo(HaveOccurred())
		defer rc.Close()
		data, err := io.ReadAll(rc)
		Expect(err).NotTo(HaveOccurred())
		return string(data)
	}
	It("give the same conversation again", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		text := "<hello> & \u2028 \"you\""
		Expect(st.Apply(ctx, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: &text}},
			&store.AppendMessage{Message: &store.Message{Role: store.RoleAssistant, Content: &text, ToolCalls: []store.ToolCall{{ID: "1", Name: "look", Arguments: `{"a": 1.0}`}}}},
			&store.PutRun{Run: store.Run{ID: "sess_1", Agent: "helper", Status: store.RunSucceeded, Steps: 2, Usage: json.RawMessage(`{"inputTokens":3,"outputTokens":4}`)}},
		)).To(Succeed())
		first := export(ctx, t)
		Expect(strings.Count(first, "\n")).To(Equal(5), first)
		_, copied := e.thread("copy")
		res, err := copied.Import(ctx, strings.NewReader(first))
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Messages).To(BeEquivalentTo(1))
		Expect(res.Events).To(BeEquivalentTo(3))
		Expect(export(ctx, copied)).To(Equal(first))
		_, err = copied.Import(ctx, strings.NewReader(first))
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	})
	It("say which line is wrong, and leave nothing behind", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		good := `{"agentId":"a","createdAt":"2026-01-01T00:00:00Z","updatedAt":"2026-01-01T00:00:00Z"}` + "\n" + `{"role":"user","text":"x","timestamp":"2026-01-01T00:00:00Z"}` + "\n"
		_, err := t.Import(ctx, strings.NewReader(good+`{"type":"dance","timestamp":"2026-01-01T00:00:00Z"}`))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring("line 3"), ContainSubstring("dance"))))
		Expect(t.Messages(ctx, runtimeclient.MessageOptions{})).To(HaveField("Total", int64(0)))
		_, err = t.Import(ctx, bytes.NewReader(nil))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(e.status("POST", at("hello", "/import"), good, "Content-Type", "image/png").Code).To(BeEquivalentTo(415))
		Expect(t.Import(ctx, strings.NewReader(good))).To(HaveField("Messages", int64(1)))
	})
})

var _ = Describe("usage", Label("LOG-03"), func() {
	It("is summed by thread, agent and namespace", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		Expect(st.Apply(ctx, &store.PutRun{Run: store.Run{ID: "sess_1", Agent: "helper", Status: store.RunSucceeded, Steps: 2, Usage: json.RawMessage(`{"inputTokens":3,"outputTokens":4}`)}})).To(Succeed())
		Expect(t.Usage(ctx, false)).To(And(HaveField("InputTokens", int64(3)), HaveField("Turns", int64(2)), HaveField("Runs", int64(1)), HaveField("Threads", int64(1))))
		Expect(t.Usage(ctx, true)).To(HaveField("OutputTokens", int64(4)))
		Expect(e.client().Usage(ctx, "ns", "")).To(HaveField("InputTokens", int64(3)))
		Expect(e.client().Usage(ctx, "ns", "helper")).To(HaveField("InputTokens", int64(3)))
		Expect(e.client().Usage(ctx, "ns", "other")).To(HaveField("InputTokens", int64(0)))
	})
})
