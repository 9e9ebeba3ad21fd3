package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/window"
	"github.com/skein-dev/skein/internal/store"
)

// memory is how the request for a summary begins.
const memory = "You keep the memory"

// summed returns the requests for summaries, and the others.
func summed(all []model.Request) (summaries, others []model.Request) {
	for _, r := range all {
		if strings.HasPrefix(r.Messages[0].Content, memory) {
			summaries = append(summaries, r)
		} else {
			others = append(others, r)
		}
	}
	return summaries, others
}

// summariesOf returns the messages of a thread that are summaries.
func summariesOf(ctx context.Context, w *enginetest.World, id string) (out []store.Message) {
	GinkgoHelper()
	all, err := w.Messages(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	for _, m := range all {
		if m.Summary != nil {
			out = append(out, m)
		}
	}
	return out
}

// compactionEvents returns the data of a thread's events of a type.
func compactionEvents(ctx context.Context, w *enginetest.World, id, kind string) (out []map[string]any) {
	GinkgoHelper()
	list, err := w.Store.Events(ctx, id, 0, 1000)
	Expect(err).NotTo(HaveOccurred())
	for _, e := range list {
		if e.Type == kind {
			var data map[string]any
			Expect(json.Unmarshal(e.Data, &data)).To(Succeed())
			out = append(out, data)
		}
	}
	return out
}

// compacting makes an agent sum up at 60 percent of a window, and keep 30.
func compacting(tokens int64, change ...func(*skeinv1.PromptCompaction)) func(*definition.Agent) {
	return func(a *definition.Agent) {
		a.A.Model.Spec.Capabilities = &skeinv1.ModelCapabilities{ContextWindow: tokens, MaxOutputTokens: 100}
		c := &skeinv1.PromptCompaction{Threshold: ptr.To[int32](60), Keep: ptr.To[int32](30)}
		for _, f := range change {
			f(c)
		}
		a.A.Prompt.Spec.Compaction = c
	}
}

// usageOf is the usage of a request, by the same count as the estimate.
func usageOf(req model.Request) *model.Usage {
	u := &model.Usage{OutputTokens: 1}
	for i := range req.Messages {
		u.InputTokens += int64(window.Message(&req.Messages[i]))
	}
	return u
}

// remembering answers requests for summaries with the numbers that it reads, and others with a text.
func remembering(_ int, req model.Request) *model.Response {
	if !strings.HasPrefix(req.Messages[0].Content, memory) {
		return &model.Response{Content: "fine " + strings.Repeat("y", 200), Usage: usageOf(req)}
	}
	out := []string{"SUMMARY"}
	for n := range 40 {
		if said := fmt.Sprintf("number-%d.", n); strings.Contains(req.Messages[1].Content, said) {
			out = append(out, said)
		}
	}
	return &model.Response{Content: strings.Join(out, " "), Usage: usageOf(req)}
}

var _ = Describe("Compaction", Label("MSG-12"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })
	say := func(ctx context.Context, id string, n int) store.Run {
		GinkgoHelper()
		send(ctx, w, id, fmt.Sprintf("number-%d. %s", n, strings.Repeat("x", 200)))
		r := rest(ctx, w, id)
		Expect(r.Status).To(Equal(store.RunSucceeded))
		return r
	}

	It("sums up older turns near the end of the window, and each summary continues the one before", func(ctx SpecContext) {
		w.Definitions.Put("a", compacting(1100))
		m := listening(w, remembering)
		start(w)
		id := makeThread(ctx, w, "a")
		var used int64
		for n := range 20 {
			r := say(ctx, id, n)
			var usage struct {
				InputTokens int64 `json:"inputTokens"`
			}
			Expect(json.Unmarshal(r.Usage, &usage)).To(Succeed())
			used += usage.InputTokens
		}
		asked, answered := summed(m.requests())
		summaries := summariesOf(ctx, w, id)
		Expect(len(summaries)).To(BeNumerically(">", 2))
		Expect(asked).To(HaveLen(len(summaries)))
		read := int64(0)
		for _, req := range m.requests() {
			read += usageOf(req).InputTokens
		}
		Expect(used).To(Equal(read), "a run used what its summaries used as well")
		for i, s := range summaries {
			Expect(s.Role).To(Equal(store.RoleSystem))
			Expect(s.Silent).To(BeTrue())
			Expect(s.Summary.From).To(Equal(summaries[0].Summary.From))
			if i > 0 {
				Expect(s.Summary.Of).To(Equal(summaries[i-1].ID))
				Expect(asked[i].Messages[1].Content).To(ContainSubstring(*summaries[i-1].Content))
				Expect(asked[i].Messages[1].Content).NotTo(ContainSubstring("number-0. x"), "only what came since is read again")
			}
		}
		last := answered[len(answered)-1].Messages
		newest := summaries[len(summaries)-1]
		Expect(last[0].Content).To(Equal("You are a test."), "the system prompt is not summed up")
		Expect(last[1].Role).To(Equal(model.RoleUser))
		Expect(last[1].Content).To(ContainSubstring(*newest.Content))
		all := fmt.Sprint(view(answered[len(answered)-1]))
		for n := range 20 {
			Expect(all).To(ContainSubstring(fmt.Sprintf("number-%d.", n)), "nothing is left out")
		}
		Expect(compactionEvents(ctx, w, id, store.EventContextTrimmed)).To(BeEmpty())
		done := compactionEvents(ctx, w, id, store.EventContextCompacted)
		Expect(done).To(HaveLen(len(summaries)))
		Expect(done[len(done)-1]).To(And(HaveKeyWithValue("to", newest.Summary.To), HaveKeyWithValue("messages", BeEquivalentTo(newest.Summary.Messages)), HaveKeyWithValue("model", "a")))
		Expect(w.Messages(ctx, id)).To(HaveLen(40+len(summaries)), "the log has all of it")
	})

	It("keeps the beginning of the request the same between two summaries, for the provider's cache", func(ctx SpecContext) {
		w.Definitions.Put("a", compacting(1100))
		m := listening(w, remembering)
		start(w)
		id := makeThread(ctx, w, "a")
		for n := range 15 {
			say(ctx, id, n)
		}
		_, answered := summed(m.requests())
		breaks := 0
		for i := 1; i < len(answered); i++ {
			before, now := view(answered[i-1]), view(answered[i])
			if fmt.Sprint(now[:min(len(before), len(now))]) != fmt.Sprint(before) {
				breaks++
			}
		}
		Expect(breaks).To(Equal(len(summariesOf(ctx, w, id))))
	})

	It("sums up within a turn, with calls and results whole and the task in the user's words", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), compacting(2600), withPrompt(func(p *skeinv1.PromptSpec) { p.ParallelToolCalls = true }))
		calls := 0
		m := listening(w, func(n int, req model.Request) *model.Response {
			if strings.HasPrefix(req.Messages[0].Content, memory) {
				return remembering(n, req)
			}
			if calls++; calls > 12 {
				return &model.Response{Content: "done"}
			}
			res := &model.Response{Content: strings.Repeat("z", 400)}
			for i := range 2 {
				res.ToolCalls = append(res.ToolCalls, model.ToolCall{ID: fmt.Sprintf("c%d-%d", calls, i), Name: "get_value", Arguments: `{"key":"k"}`})
			}
			return res
		})
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "number-1. Do the whole task.")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(summariesOf(ctx, w, id)).NotTo(BeEmpty())
		_, answered := summed(m.requests())
		for _, req := range answered {
			Expect(view(req)).To(ContainElement("user number-1. Do the whole task."))
			made := map[string]bool{}
			for _, msg := range req.Messages {
				for _, c := range msg.ToolCalls {
					made[c.ID] = true
				}
				if msg.Role == model.RoleTool {
					Expect(made).To(HaveKey(msg.ToolCallID))
					Expect(msg.Content).NotTo(ContainSubstring("interrupted"))
				}
			}
		}
	})

	It("goes on without a summary when its model fails, and tries again later", func(ctx SpecContext) {
		for _, c := range []struct {
			answer  *model.Response
			err     error
			reason  string
			message string
		}{
			{err: &model.Error{Kind: model.KindStatus, Message: "out of order"}, reason: "ModelFailed", message: "out of order"},
			{answer: &model.Response{Content: "  \n"}, reason: "EmptySummary", message: "spec.compaction.instructions"},
			{answer: &model.Response{Content: "I will not.", Refused: true}, reason: "EmptySummary", message: "answered with no summary"},
			{err: context.DeadlineExceeded, reason: "ModelFailed", message: "did not answer within"},
		} {
			w := newWorld()
			w.Definitions.Put("a", compacting(1100), func(a *definition.Agent) { a.A.Compactor = &definition.Model{Name: "other", Version: "1"} })
			broken := true
			m := listening(w, remembering)
			w.Models = failingBy{w.Models, "other", func(ctx context.Context) (*model.Response, error) {
				if !broken {
					return &model.Response{Content: "healed"}, nil
				}
				if errors.Is(c.err, context.DeadlineExceeded) {
					<-ctx.Done()
				}
				return c.answer, c.err
			}}
			start(w, func(o *engine.Options) { o.CompactionTimeout = 20 * time.Millisecond })
			id := makeThread(ctx, w, "a")
			for n := range 14 {
				send(ctx, w, id, fmt.Sprintf("number-%d. %s", n, strings.Repeat("x", 200)))
				Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			}
			Expect(summariesOf(ctx, w, id)).To(BeEmpty())
			Expect(compactionEvents(ctx, w, id, store.EventContextTrimmed)).NotTo(BeEmpty(), "as without compaction")
			failed := compactionEvents(ctx, w, id, store.EventCompactionFailed)
			Expect(failed).NotTo(BeEmpty())
			Expect(failed[0]).To(And(HaveKeyWithValue("reason", c.reason), HaveKeyWithValue("message", ContainSubstring(c.message))))
			broken = false
			send(ctx, w, id, "number-9. "+strings.Repeat("x", 200))
			rest(ctx, w, id)
			Expect(summariesOf(ctx, w, id)).NotTo(BeEmpty())
			Expect(fmt.Sprint(view(m.requests()[len(m.requests())-1]))).To(ContainSubstring("healed"))
		}
	})

	It("sums up bit by bit when the model of the summary reads little at once", func(ctx SpecContext) {
		w.Definitions.Put("a", compacting(4000), func(a *definition.Agent) {
			a.A.Compactor = &definition.Model{Name: "small", Version: "1", Spec: skeinv1.ModelSpec{Capabilities: &skeinv1.ModelCapabilities{ContextWindow: 900, MaxOutputTokens: 100}}}
		})
		m := listening(w, remembering)
		start(w)
		id := makeThread(ctx, w, "a")
		for n := range 14 {
			say(ctx, id, n)
		}
		send(ctx, w, id, "number-14. "+strings.Repeat("x", 6000))
		rest(ctx, w, id)
		asked, answered := summed(m.requests())
		Expect(len(asked)).To(BeNumerically(">", 2))
		Expect(asked).To(HaveLen(len(summariesOf(ctx, w, id))))
		last := fmt.Sprint(view(answered[len(answered)-1]))
		for n := range 15 {
			Expect(last).To(ContainSubstring(fmt.Sprintf("number-%d.", n)))
		}
	})

	It("shows each side of two its own summary, made of what that side has read", func(ctx SpecContext) {
		w.Definitions.Put("a", compacting(1400), func(a *definition.Agent) { a.Spec.MaxSessionTurns = 24 }, enginetest.Dual(compacting(1400)))
		n := 0
		m := listening(w, func(call int, req model.Request) *model.Response {
			if strings.HasPrefix(req.Messages[0].Content, memory) {
				return &model.Response{Content: "SUMMARY for one that reads " + req.Messages[1].Content[:len("[user]")]}
			}
			n++
			return &model.Response{Content: fmt.Sprintf("number-%d. %s", n, strings.Repeat("y", 200))}
		})
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "begin")
		rest(ctx, w, id)
		sides := map[string]int{}
		for _, s := range summariesOf(ctx, w, id) {
			sides[s.Summary.Side]++
			Expect(s.Side).To(Equal(s.Summary.Side))
		}
		Expect(sides).To(And(HaveKey("a"), HaveKey("b")))
		_, answered := summed(m.requests())
		for _, req := range answered {
			Expect(strings.Count(fmt.Sprint(view(req)), "<summary>")).To(BeNumerically("<=", 1))
		}
	})

	It("is not used after an edit of what was summed up, and none is with mode never", func(ctx SpecContext) {
		w.Definitions.Put("a", compacting(1100))
		m := listening(w, remembering)
		start(w)
		id := makeThread(ctx, w, "a")
		for n := range 8 {
			say(ctx, id, n)
		}
		summaries := summariesOf(ctx, w, id)
		Expect(summaries).NotTo(BeEmpty())
		text := "secret-free"
		Expect(w.Store.Apply(ctx, id, nil, &store.UpdateMessage{ID: summaries[0].Summary.From, Content: &text})).To(Succeed())
		Expect(summariesOf(ctx, w, id)).To(BeEmpty())
		say(ctx, id, 8)
		_, answered := summed(m.requests())
		Expect(fmt.Sprint(view(answered[len(answered)-1]))).NotTo(ContainSubstring("number-0."))
		Expect(summariesOf(ctx, w, id)).NotTo(BeEmpty(), "it is summed up anew")
		w.Definitions.Put("a", compacting(100_000, func(c *skeinv1.PromptCompaction) { c.Mode = skeinv1.CompactionNever }))
		say(ctx, id, 9)
		all := m.requests()
		Expect(fmt.Sprint(view(all[len(all)-1]))).NotTo(ContainSubstring("<summary>"))
	})
})

// failingBy replaces the client of one Model.
type failingBy struct {
	model.Factory
	name   string
	answer func(context.Context) (*model.Response, error)
}

func (f failingBy) Client(c model.Config) (model.Client, error) {
	if c.Name == f.name {
		return f, nil
	}
	return f.Factory.Client(c)
}

func (f failingBy) Stream(ctx context.Context, _ model.Request, _ func(model.Delta)) (*model.Response, error) {
	return f.answer(ctx)
}
