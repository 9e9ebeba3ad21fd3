package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("A run", func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	It("answers a message and rests, then answers the next", Label("THR-04", "AGT-01", "AGT-06"), func(ctx SpecContext) {
		w.Definitions.Put("echo", enginetest.Script(enginetest.Say("You said {{.Last.Content}}.")))
		start(w)
		id := makeThread(ctx, w, "echo")
		send(ctx, w, id, "one")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		send(ctx, w, id, "two")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{
			"user: one", "assistant: You said one.", "user: two", "assistant: You said two.",
		}))
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(2))
		Expect(runs[0].ID).To(MatchRegexp(`^sess_[0-9a-f]{32}$`))
		Expect(runs[0].EndedAt).To(BeNumerically(">=", runs[0].StartedAt))
	})

	It("calls tools, records their results and answers from them", Label("TOL-02", "RUN-01"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinFiles), enginetest.Script(
			enginetest.Call("write_file", map[string]any{"path": "/a.txt", "content": "forty-two"}),
			enginetest.Call("read_file", map[string]any{"path": "/a.txt"}),
			enginetest.Say(`It says {{toolResult "read_file"}}.`),
		))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		r := rest(ctx, w, id)
		Expect(r.Status).To(Equal(store.RunSucceeded))
		Expect(r.Steps).To(Equal(3))
		Expect(told(ctx, w, id)).To(HaveExactElements(
			"user: go", "assistant ->write_file", ContainSubstring(`tool write_file success: {"path":"/a.txt","size":9`),
			"assistant ->read_file", "tool read_file success: forty-two", "assistant: It says forty-two."))
	})

	It("goes through its stages in order", Label("RUN-01"), func(ctx SpecContext) {
		var mu sync.Mutex
		var points []string
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
			enginetest.Call("get_value", map[string]any{"key": "k"}), enginetest.Say("done")))
		start(w, func(o *engine.Options) {
			o.SweepInterval = hour // no sweep looks at it a second time
			o.Faults = func(p string) {
				mu.Lock()
				defer mu.Unlock()
				points = append(points, p)
			}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Eventually(func() []string { // the last point is behind the write that brings the thread to rest
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(points)
		}).Should(Equal([]string{
			"lease.acquired",
			"intake.before", "intake.after", // the input is in the log before anything is made of it
			"model.before", "model.after", "answer.before", "answer.after",
			"call.before", "call.after", "result.before", "result.after",
			"model.before", "model.after", "finish.before", "finish.after",
		}))
	})

	It("takes runs of one thread one after the other, first in, first out", Label("THR-13"), func(ctx SpecContext) {
		w.Definitions.Put("slow", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
		var sent atomic.Bool
		w.Models = patient{w.Models, "slow", func(context.Context) bool { return sent.Load() }}
		start(w)
		id := makeThread(ctx, w, "slow")
		for i := range 4 {
			send(ctx, w, id, fmt.Sprint(i))
			if i == 0 { // the first is under way before the others come
				Eventually(func() bool { r, err := w.Store.Run(ctx, id, ""); return err == nil && r.Status == store.RunRunning }).Should(BeTrue())
			}
		}
		sent.Store(true)
		rest(ctx, w, id)
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(len(runs)).To(BeNumerically(">=", 2))
		for i := 1; i < len(runs); i++ {
			Expect(runs[i].StartedAt).To(BeNumerically(">=", runs[i-1].EndedAt), "runs must not overlap")
		}
		var users []string
		for _, line := range told(ctx, w, id) {
			if line[:4] == "user" {
				users = append(users, line)
			}
		}
		Expect(users).To(Equal([]string{"user: 0", "user: 1", "user: 2", "user: 3"}))
	})

	It("runs different threads at the same time", Label("THR-13"), func(ctx SpecContext) {
		meet := newBarrier(2)
		w.Models = meet
		w.Definitions.Put("a")
		start(w)
		one, two := makeThread(ctx, w, "a"), makeThread(ctx, w, "a")
		send(ctx, w, one, "x")
		send(ctx, w, two, "x")
		Expect(rest(ctx, w, one).Status).To(Equal(store.RunSucceeded)) // each waits for the other
		Expect(rest(ctx, w, two).Status).To(Equal(store.RunSucceeded))
	})

	It("lets a running thread see a new message before its next model step", Label("MSG-05"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
			enginetest.Call("get_value", map[string]any{"key": "k"}),
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "user", Matches: "meanwhile"}, Content: "I saw it."},
			enginetest.Say("I saw nothing."),
		))
		var id string
		start(w, func(o *engine.Options) {
			o.Faults = func(p string) {
				if p == "call.before" {
					send(ctx, w, id, "meanwhile")
				}
			}
		})
		id = makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements(
			"user: go", "assistant ->get_value", "tool get_value success: null", "user: meanwhile", "assistant: I saw it."))
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(1))
	})

	It("starts on messages that came while no engine was there", Label("MSG-05"), func(ctx SpecContext) {
		w.Definitions.Put("echo", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
		id := makeThread(ctx, w, "echo")
		send(ctx, w, id, "one")
		send(ctx, w, id, "two")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		page, err := st.Messages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveLen(2))
		Expect(page.Messages[0].Status).To(Equal(store.MessagePending))
		Expect(page.Messages[0].Metadata).To(HaveKeyWithValue("queued", true))
		start(w)
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: one", "user: two", "assistant: re: two"}))
		page, err = st.Messages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages[0].Metadata).NotTo(HaveKey("queued"))
		Expect(page.Messages[0].Status).To(Equal(store.MessageCompleted))
	})

	It("waits for its agent, keeping the inbox, and starts when it is there", Label("THR-04"), func(ctx SpecContext) {
		var looks atomic.Int32
		e, _ := start(w, func(o *engine.Options) {
			o.SweepInterval = hour
			o.Faults = func(p string) {
				if p == "lease.acquired" {
					looks.Add(1)
				}
			}
		})
		id := makeThread(ctx, w, "later")
		send(ctx, w, id, "hello")
		Consistently(w.Resting, "300ms").WithContext(ctx).WithArguments(id).Should(BeFalse())
		_, err := w.Store.Run(ctx, id, "")
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(looks.Load()).To(BeNumerically("<=", 2), "it does not ask again and again")
		w.Definitions.Put("later", enginetest.Script(enginetest.Say("here")))
		e.Wake(id)
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: hello", "assistant: here"}))
	})

	It("fills the thread's arguments and task into the prompt", Label("RUN-01"), func(ctx SpecContext) {
		seen := &recorder{answer: "ok"}
		w.Models = seen
		w.Definitions.Put("a", func(a *definition.Agent) {
			a.A.Prompt.Spec.Text = "Speak {{ arguments.language }} to {{arguments.who}}{{ arguments.none }}."
		})
		start(w)
		id := makeThread(ctx, w, "a", func(n *thread.NewThread) {
			n.Arguments = enginetest.JSON(map[string]any{"language": "Latin", "who": map[string]any{"n": 1}})
			n.TaskID = "T-1"
		})
		send(ctx, w, id, "x")
		rest(ctx, w, id)
		Expect(seen.requests()[0].Messages[0]).To(Equal(model.Message{
			Role: model.RoleSystem, Content: "Speak Latin to {\"n\":1}.\n\nThis conversation belongs to the task T-1.",
		}))
	})
})

// recorder is a model that keeps what it was asked.
type recorder struct {
	mu     sync.Mutex
	asked  []model.Request
	answer string
}

func (r *recorder) Client(model.Config) (model.Client, error) { return r, nil }

func (r *recorder) Stream(_ context.Context, req model.Request, _ func(model.Delta)) (*model.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, req)
	return &model.Response{Content: r.answer, FinishReason: "stop"}, nil
}

func (r *recorder) requests() []model.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// barrier is a model that answers once n calls are under way.
type barrier struct{ group sync.WaitGroup }

func newBarrier(n int) *barrier {
	b := &barrier{}
	b.group.Add(n)
	return b
}

func (b *barrier) Client(model.Config) (model.Client, error) { return b, nil }

func (b *barrier) Stream(ctx context.Context, _ model.Request, _ func(model.Delta)) (*model.Response, error) {
	b.group.Done()
	met := make(chan struct{})
	go func() { b.group.Wait(); close(met) }()
	select {
	case <-met:
		return &model.Response{Content: "met"}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
