package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("code", func() {
	It("goes to the sandbox as asked for, and comes back as JSON", Label("COD-01"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		when := time.UnixMicro(1_700_000_000_000_000).UTC()
		e.engine.result = sandbox.Result{
			Status: sandbox.StatusSuccess, Duration: 1500 * time.Microsecond, MemoryUsedBytes: 42,
			Value:   map[string]any{"n": 1.5, "big": big.NewInt(7), "at": when, "set": &value.Set{Members: []any{"a"}}, "no": value.Undefined{}},
			Reports: []any{"half"}, Logs: []sandbox.Log{{Level: "info", Message: "hi", Time: when}},
		}
		res, err := t.ExecuteCode(ctx, runtimev1.CodeRequest{
			Source: "export const f = (a: number) => a", Execute: &runtimev1.CodeExecute{Fn: "f", Args: []json.RawMessage{[]byte("1"), []byte(`{"a":[true]}`)}},
			Globals: map[string]json.RawMessage{"g": []byte(`"x"`)}, Imports: map[string]map[string]json.RawMessage{"lib": {"v": []byte("2")}},
			Modules: map[string]string{"./m.ts": "export {}"}, WallTime: &metav1.Duration{Duration: time.Second}, MemoryLimitBytes: 1 << 20,
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.engine.code).To(Equal(sandbox.CodeRequest{
			Source: "export const f = (a: number) => a", Fn: "f", Args: []any{1.0, map[string]any{"a": []any{true}}},
			Globals: map[string]sandbox.Binding{"g": {Value: "x"}}, Imports: map[string]map[string]sandbox.Binding{"lib": {"v": {Value: 2.0}}},
			Modules: map[string]string{"./m.ts": "export {}"}, WallTime: time.Second, MemoryLimitBytes: 1 << 20,
		}))
		Expect(res.Status).To(Equal("success"))
		Expect(res.Result).To(MatchJSON(`{"n":1.5,"big":7,"at":"2023-11-14T22:13:20.000Z","set":["a"]}`))
		Expect(res.Reports).To(ConsistOf(MatchJSON(`"half"`)))
		Expect(res.Logs).To(ConsistOf(runtimev1.CodeLog{Level: "info", Message: "hi", Time: when.UnixMicro()}))
		Expect(res.DurationMs).To(Equal(1.5))
		Expect(res.MemoryUsedBytes).To(Equal(int64(42)))
	})

	It("tells how it failed", Label("COD-05"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		e.engine.result = sandbox.Result{Status: sandbox.StatusError, Error: &sandbox.Error{Name: "TypeError", Message: "x", Stack: "at main.ts:1:2", Line: 1, Column: 2}}
		Expect(t.ExecuteCode(ctx, runtimev1.CodeRequest{Source: "x"})).To(And(HaveField("Status", "error"),
			HaveField("Error", HaveValue(Equal(runtimev1.CodeError{Name: "TypeError", Message: "x", Stack: "at main.ts:1:2", Line: 1, Column: 2})))))
		e.engine.err = &definition.NotReadyError{Reason: "ReferenceNotFound", Message: "agent helper does not exist"}
		_, err := t.ExecuteCode(ctx, runtimev1.CodeRequest{Source: "x"})
		Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("agent helper does not exist")))
	})

	DescribeTable("bad requests",
		func(body, outcome, message string) {
			e := newEnv()
			e.thread("hello")
			_, answer := e.do("POST", at("hello", "/code"), strings.NewReader(body))
			Expect(answer).To(ContainSubstring(outcome))
			Expect(answer).To(ContainSubstring(message))
		},
		Entry("unknown option", `{"source":"x","network":true}`, `"status":"link_error"`, "network"),
		Entry("no source", `{}`, `"reason":"Invalid"`, "source"),
		Entry("language", `{"source":"x","language":"python"}`, `"reason":"Invalid"`, "typescript or javascript"),
		Entry("wall time", `{"source":"x","wallTime":"-1s"}`, `"reason":"Invalid"`, "wallTime"),
		Entry("memory", `{"source":"x","memoryLimitBytes":-1}`, `"reason":"Invalid"`, "memoryLimitBytes"),
		Entry("no JSON", `{"source":`, `"reason":"BadRequest"`, "JSON"),
	)
})

var _ = Describe("effects, children and runs", func() {
	It("schedules, lists and cancels effects", Label("EFF-01", "EFF-02"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		id, err := t.Schedule(ctx, runtimev1.NewEffect{Name: "pkg/remind", Args: []byte(`{"a":1}`), Delay: 1500, IdempotencyKey: "k"})
		Expect(err).NotTo(HaveOccurred())
		Expect(id).To(HaveLen(36))
		Expect(e.effects.asked).To(Equal(ports.EffectRequest{Cause: "api-key:k", Name: "pkg/remind", Args: []byte(`{"a":1}`), Delay: 1500 * time.Millisecond}))
		e.effects.pending = []ports.ScheduledEffect{{ID: id, Name: "pkg/remind", Args: []byte(`{"a":1}`), ScheduledAt: 2, CreatedAt: 1}, {ID: "other", Name: "other"}}
		Expect(t.Effects(ctx, "pkg/remind", runtimeclient.Page{})).To(HaveField("Effects", ConsistOf(
			runtimev1.Effect{ID: id, Name: "pkg/remind", Args: []byte(`{"a":1}`), ScheduledAt: 2, CreatedAt: 1})))
		Expect(t.Effects(ctx, "", runtimeclient.Page{Limit: 1})).To(And(HaveField("Effects", HaveLen(1)), HaveField("HasMore", true)))
		Expect(t.RemoveScheduledEffect(ctx, id)).To(BeTrue())
		Expect(t.RemoveScheduledEffect(ctx, id)).To(BeFalse())
		for _, bad := range []runtimev1.NewEffect{{}, {Name: "x", Delay: -1}, {Name: "x", Delay: 365*24*3600*1000 + 1}} {
			_, err := t.Schedule(ctx, bad)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			if bad.Name != "" {
				Expect(err).To(MatchError(ContainSubstring("delay: it must be the delay in milliseconds: a number from 0, which is now, to a year")))
			}
		}
		e.effects.err = &definition.NotReadyError{Reason: "ReferenceNotFound", Message: `there is no Effect "x"`}
		_, err = t.Schedule(ctx, runtimev1.NewEffect{Name: "x"})
		Expect(err).To(MatchError(ContainSubstring(`there is no Effect "x"`)))
		e.effects.err = errors.New("boom")
		_, err = t.Schedule(ctx, runtimev1.NewEffect{Name: "x"})
		Expect(apierrors.IsInternalError(err)).To(BeTrue(), "%v", err)
	})

	It("lists children", Label("SUB-01"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		e.children = memoryChildren{{Reference: "r1", Name: "auditor", Title: "T", Blocking: true, ThreadName: "c", ThreadID: "id", Status: "running", CreatedAt: 1, ParentCommunication: "implicit"}, {Reference: "r2"}}
		Expect(t.Children(ctx, runtimeclient.Page{Limit: 1})).To(And(HaveField("HasMore", true), HaveField("Children", ConsistOf(runtimev1.Child{
			Reference: "r1", Name: "auditor", Title: "T", Blocking: true, ThreadName: "c", ThreadID: "id", Status: "running", CreatedAt: 1, ParentCommunication: "implicit",
		}))))
		Expect(t.Child(ctx, "r2")).To(HaveField("Reference", "r2"))
		Expect(t.Child(ctx, "r3")).To(BeNil())
	})

	It("lists 10,000 children of one thread in pages, each once", Label("SUB-01"), func(ctx SpecContext) {
		const children = 10_000
		e := newEnv()
		_, t := e.thread("hello")
		for i := range children {
			e.children = append(e.children, skeinv1.ChildStatus{Reference: fmt.Sprintf("r%05d", i), Name: "auditor", Title: strings.Repeat("t", 60), Status: "completed"})
		}
		n := 0
		for c, err := range t.AllChildren(ctx) {
			Expect(err).NotTo(HaveOccurred())
			Expect(c.Reference).To(Equal(e.children[n].Reference))
			n++
		}
		Expect(n).To(Equal(children))
		Expect(t.Children(ctx, runtimeclient.Page{Limit: runtimev1.MaxPageSize, Offset: children - 1})).To(And(HaveField("HasMore", false), HaveField("Children", HaveLen(1))))
		Expect(t.Child(ctx, "r09999")).To(HaveField("Reference", "r09999"))
		Expect(e.status("GET", at("hello", "/children?limit=1001"), "").Code).To(BeEquivalentTo(422))
	})

	It("lists runs, newest first, and stops", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		for i, id := range []string{"sess_a", "sess_b", "sess_c"} {
			Expect(st.Apply(ctx, &store.PutRun{Run: store.Run{ID: id, ThreadID: st.ID(), Agent: "helper", Status: store.RunFailed, Reason: "ModelTimeout", Message: "slow", Steps: i, StartedAt: int64(i + 1), EndedAt: int64(i + 2)}})).To(Succeed())
		}
		page, err := t.Runs(ctx, runtimeclient.Page{Limit: 2})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.HasMore).To(BeTrue())
		Expect(page.Runs).To(Equal([]runtimev1.Run{
			{ID: "sess_c", Agent: "helper", Status: "failed", Reason: "ModelTimeout", Message: "slow", Steps: 2, StartedAt: 3, EndedAt: 4},
			{ID: "sess_b", Agent: "helper", Status: "failed", Reason: "ModelTimeout", Message: "slow", Steps: 1, StartedAt: 2, EndedAt: 3},
		}))
		Expect(t.Runs(ctx, runtimeclient.Page{Offset: 2})).To(And(HaveField("HasMore", false), HaveField("Runs", HaveLen(1))))
		Expect(t.Run(ctx, "sess_a")).To(HaveField("StartedAt", int64(1)))
		Expect(t.Run(ctx, "sess_x")).To(BeNil())
		rec, err := t.Stop(ctx, "enough")
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.LastRun).To(HaveField("ID", "sess_c"))
		Expect(e.engine.stopped).To(ConsistOf(st.ID() + " enough"))
	})
})
