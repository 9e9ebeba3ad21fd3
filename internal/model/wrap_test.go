package model_test

import (
	"context"
	"encoding/json"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
)

// played answers or fails as configured, after a piece of its answer, and records the requests.
type played struct {
	answer string
	errs   []error // of the first calls; nil means an answer
	asked  []model.Request
}

func (p *played) Stream(_ context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	p.asked = append(p.asked, req)
	emit(model.Delta{Text: p.answer})
	if n := len(p.asked); n <= len(p.errs) && p.errs[n-1] != nil {
		return nil, p.errs[n-1]
	}
	return &model.Response{Content: p.answer, Session: "s-" + p.answer, Usage: &model.Usage{InputTokens: 1000, OutputTokens: 100}}, nil
}

var _ = Describe("Fallbacks", Label("AGT-06"), func() {
	ctx := context.Background()
	busy := &model.Error{Kind: model.KindStatus, Status: 503, Passing: true, Message: "busy"}

	It("answer in order, report which model did and why, and reset what the others had begun", func() {
		a, b, c := &played{answer: "a", errs: []error{busy}}, &played{answer: "b", errs: []error{busy}}, &played{answer: "c"}
		var deltas []model.Delta
		res, err := model.WithFallbacks(model.Named{Name: "a", Client: a}, model.Named{Name: "b", Client: b}, model.Named{Name: "c", Client: c}).
			Stream(ctx, model.Request{Session: "old", SessionMessages: 3}, func(d model.Delta) { deltas = append(deltas, d) })
		Expect(err).NotTo(HaveOccurred())
		Expect(res).To(And(HaveField("Content", "c"), HaveField("Model", "c"), HaveField("Failures", []string{"a: busy", "b: busy"})))
		Expect(res.Session).To(BeEmpty(), "a session belongs to the first Model")
		Expect(deltas).To(Equal([]model.Delta{{Text: "a"}, {Reset: true}, {Text: "b"}, {Reset: true}, {Text: "c"}}))
		Expect(a.asked[0].Session).To(Equal("old"))
		Expect(b.asked[0]).To(And(HaveField("Session", ""), HaveField("SessionMessages", 0)))
	})

	It("that fail too are added to the first failure, which is not changed itself", func() {
		_, err := model.WithFallbacks(model.Named{Name: "a", Client: &played{errs: []error{busy}}}, model.Named{Name: "b", Client: &played{errs: []error{&model.Error{Kind: model.KindStatus, Status: 400, Message: "nonsense"}}}},
			model.Named{Name: "c", Client: &played{}}).Stream(ctx, model.Request{}, func(model.Delta) {})
		Expect(err).To(And(HaveField("Status", 503), HaveField("Message", "busy; its fallbacks failed too: b: nonsense")))
		Expect(busy.Message).To(Equal("busy"), "the error of a client may be shared")
	})

	It("are not asked when the context has ended", func() {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		b := &played{}
		_, err := model.WithFallbacks(model.Named{Name: "a", Client: &played{errs: []error{busy}}}, model.Named{Name: "b", Client: b}).Stream(ctx, model.Request{}, func(model.Delta) {})
		Expect(err).To(HaveOccurred())
		Expect(b.asked).To(BeEmpty())
	})

	DescribeTable("are asked after failures that another model may not have", func(e model.Error, want bool) {
		Expect(model.FallsBack(&e)).To(Equal(want))
	},
		Entry("unreachable", model.Error{Kind: model.KindUnreachable}, true),
		Entry("too slow", model.Error{Kind: model.KindTimeout}, true),
		Entry("a bad answer", model.Error{Kind: model.KindBadAnswer}, true),
		Entry("failed", model.Error{Kind: model.KindFailed}, true),
		Entry("overloaded", model.Error{Kind: model.KindStatus, Status: 529, Passing: true}, true),
		Entry("no quota left", model.Error{Kind: model.KindStatus, Status: 429}, true),
		Entry("unauthorized", model.Error{Kind: model.KindStatus, Status: 401}, true),
		Entry("unknown model", model.Error{Kind: model.KindStatus, Status: 404}, true),
		Entry("too long for its context window", model.Error{Kind: model.KindStatus, Status: 400, Code: model.CodeContextLength}, true),
		Entry("a bad request", model.Error{Kind: model.KindStatus, Status: 400}, false),
		Entry("a filtered answer", model.Error{Kind: model.KindFiltered}, false),
		Entry("a filtered request", model.Error{Kind: model.KindStatus, Status: 400, Code: model.CodeFiltered}, false),
		Entry("a wrong declaration", model.Error{Kind: model.KindConfig}, false),
	)
})

var _ = Describe("A provider's conversation", Label("RUN-06"), func() {
	resume := model.Request{Session: "old", SessionMessages: 2}
	It("that cannot be continued is started again, in full", func() {
		p := &played{answer: "x", errs: []error{&model.Error{Kind: model.KindStatus, Status: 404}}}
		var deltas []model.Delta
		res, err := model.WithRestarts(p).Stream(context.Background(), resume, func(d model.Delta) { deltas = append(deltas, d) })
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Session).To(Equal("s-x"))
		Expect(p.asked[1]).To(And(HaveField("Session", ""), HaveField("SessionMessages", 0)))
		Expect(deltas).To(Equal([]model.Delta{{Text: "x"}, {Reset: true}, {Text: "x"}}))
	})
	It("is not started again for unrelated failures", func() {
		for _, err := range []error{
			&model.Error{Kind: model.KindStatus, Status: 503, Passing: true}, &model.Error{Kind: model.KindStatus, Status: 401},
			&model.Error{Kind: model.KindStatus, Status: 400, Code: model.CodeContextLength}, errors.New("stopped"),
		} {
			p := &played{errs: []error{err}}
			_, got := model.WithRestarts(p).Stream(context.Background(), resume, func(model.Delta) {})
			Expect(got).To(MatchError(err))
			Expect(p.asked).To(HaveLen(1))
		}
		p := &played{errs: []error{&model.Error{Kind: model.KindStatus, Status: 404}}}
		_, err := model.WithRestarts(p).Stream(context.Background(), model.Request{}, func(model.Delta) {})
		Expect(err).To(HaveOccurred())
		Expect(p.asked).To(HaveLen(1), "there was none")
	})
})

var _ = Describe("A model's capabilities", Label("AGT-06"), func() {
	req := model.Request{
		Messages:  []model.Message{{Role: model.RoleSystem, Content: "sys"}, {Role: model.RoleUser, Content: "u", Images: []model.Image{{MimeType: "image/png"}}}},
		Reasoning: &model.Reasoning{Effort: "low"}, ParallelToolCalls: ptr.To(true), Schema: json.RawMessage(`{"type":"object"}`),
	}
	ask := func(c *skeinv1.ModelCapabilities) (model.Request, error) {
		p := &played{}
		_, err := model.Fitted(p, "m", skeinv1.ModelSpec{Capabilities: c}).Stream(context.Background(), req, func(model.Delta) {})
		if len(p.asked) == 0 {
			return model.Request{}, err
		}
		return p.asked[0], err
	}
	It("limit the request", func() {
		got, err := ask(&skeinv1.ModelCapabilities{Vision: ptr.To(false), Reasoning: ptr.To(false), ParallelToolCalls: ptr.To(false), StructuredOutput: ptr.To(false)})
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Messages[1].Images).To(BeNil())
		Expect(got.Messages[0].Content).To(And(HavePrefix("sys\n\nAnswer with one JSON value"), HaveSuffix(`{"type":"object"}`)))
		Expect(got.Reasoning).To(BeNil())
		Expect(got.ParallelToolCalls).To(BeNil())
		Expect(got.Schema).To(BeNil())
		Expect(req.Messages[0].Content).To(Equal("sys"), "the caller's request is not changed")
		Expect(req.Messages[1].Images).To(HaveLen(1))
	})
	It("count as true where they are left out", func() {
		Expect(ask(nil)).To(Equal(req))
		Expect(ask(&skeinv1.ModelCapabilities{})).To(Equal(req))
	})
	It("may be embeddings only", func() {
		_, err := ask(&skeinv1.ModelCapabilities{Embeddings: ptr.To(true)})
		Expect(err).To(And(HaveField("Kind", model.KindConfig), HaveField("Message", ContainSubstring("one for embeddings"))))
	})
	It("come with a price", func() {
		res, err := model.Fitted(&played{}, "m", skeinv1.ModelSpec{Pricing: &skeinv1.ModelPricing{Input: "2.50", Output: "10"}}).Stream(context.Background(), req, func(model.Delta) {})
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Usage.Cost.String()).To(Equal("0.0035"))
	})
})
