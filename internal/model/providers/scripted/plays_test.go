package scripted_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/scripted"
)

var _ = Describe("A script", Label("AGT-06"), func() {
	config := func(name string, steps ...skeinv1.ScriptStep) model.Config {
		return model.Config{Name: name, Steps: steps, Spec: skeinv1.ModelSpec{Sessions: ptr.To(true)}}
	}
	client := func(steps ...skeinv1.ScriptStep) *scripted.Client {
		GinkgoHelper()
		c, err := scripted.New(config("s", steps...), clock.RealClock{})
		Expect(err).NotTo(HaveOccurred())
		return c
	}
	ctx := context.Background()
	hello := model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: "hello"}}}
	ignore := func(model.Delta) {}

	It("plays reasoning, usage, refusals and finish reasons", func() {
		var deltas []model.Delta
		res, err := client(skeinv1.ScriptStep{Content: "no", Reasoning: "hm {{ .Last.Content }}", Refused: true, FinishReason: "length",
			Usage: &skeinv1.ScriptUsage{InputTokens: 10, OutputTokens: 5, CachedTokens: 4, CacheWriteTokens: 3, ReasoningTokens: 2}}).
			Stream(ctx, hello, func(d model.Delta) { deltas = append(deltas, d) })
		Expect(err).NotTo(HaveOccurred())
		Expect(res).To(And(HaveField("Reasoning", "hm hello"), HaveField("Refused", true), HaveField("FinishReason", "length"),
			HaveField("Usage", &model.Usage{InputTokens: 10, OutputTokens: 5, CachedTokens: 4, CacheWriteTokens: 3, ReasoningTokens: 2})))
		Expect(deltas).To(Equal([]model.Delta{{Reasoning: "hm hello"}, {Text: "no"}}))
	})

	DescribeTable("plays failures", func(s skeinv1.ScriptStep, kind model.Kind, passing bool) {
		_, err := client(s).Stream(ctx, hello, ignore)
		var e *model.Error
		Expect(errors.As(err, &e)).To(BeTrue())
		Expect(e).To(And(HaveField("Kind", kind), HaveField("Passing", passing), HaveField("Metadata", HaveKeyWithValue("script_step", "0"))))
	},
		Entry("permanent", skeinv1.ScriptStep{Error: "x"}, model.KindFailed, false),
		Entry("with a passing status", skeinv1.ScriptStep{Error: "x", Status: 529}, model.KindStatus, true),
		Entry("with a permanent status", skeinv1.ScriptStep{Error: "x", Status: 401}, model.KindStatus, false),
		Entry("in the middle of a stream", skeinv1.ScriptStep{Content: "hello", BreaksAfter: ptr.To[int32](2)}, model.KindUnreachable, true),
		Entry("by a filter", skeinv1.ScriptStep{Content: "hello", FinishReason: "content_filter"}, model.KindFiltered, false),
	)

	It("plays passing failures", func() {
		c := client(skeinv1.ScriptStep{Error: "busy", Status: 429, RetryAfter: duration(7 * time.Second), Failures: ptr.To[int32](1), Content: "now"})
		_, err := c.Stream(ctx, hello, ignore)
		Expect(err).To(And(HaveField("Passing", true), HaveField("RetryAfter", 7*time.Second)))
		again := hello
		again.Try = 1
		Expect(c.Stream(ctx, again, ignore)).To(HaveField("Content", "now"))
	})

	It("plays connections that break once", func() {
		c := client(skeinv1.ScriptStep{Content: "hello", BreaksAfter: ptr.To[int32](2), Failures: ptr.To[int32](1)})
		var deltas []model.Delta
		_, err := c.Stream(ctx, hello, func(d model.Delta) { deltas = append(deltas, d) })
		Expect(err).To(HaveOccurred())
		Expect(deltas).To(Equal([]model.Delta{{Text: "he"}}))
		again := hello
		again.Try = 1
		Expect(c.Stream(ctx, again, ignore)).To(HaveField("Content", "hello"))
	})

	It("plays sessions, and forgets them", Label("RUN-06"), func() {
		c := client(skeinv1.ScriptStep{Content: "{{ .Session }}/{{ .NewMessages }}", ForgetsSession: true, Times: ptr.To[int32](0)})
		res, err := c.Stream(ctx, hello, ignore)
		Expect(err).NotTo(HaveOccurred())
		Expect(res).To(And(HaveField("Content", "/1"), HaveField("Session", "session-2")))
		resumed := hello
		resumed.Session, resumed.SessionMessages = "session-9", 1
		_, err = c.Stream(ctx, resumed, ignore)
		Expect(err).To(HaveField("Status", 404))
		Expect(model.WithRestarts(c).Stream(ctx, resumed, ignore)).To(HaveField("Content", "/1"))
	})

	It("ignores steps that another script has played in the conversation", func() {
		req := model.Request{Messages: []model.Message{{Role: model.RoleAssistant, Metadata: map[string]any{"script_step": "0", "script": "other"}}}}
		Expect(client(skeinv1.ScriptStep{Content: "mine"}).Stream(ctx, req, ignore)).To(HaveField("Content", "mine"))
	})

	It("plays embeddings in which texts that share words are near each other", Label("RUN-07"), func() {
		out, err := client(skeinv1.ScriptStep{}).Embed(ctx, []string{"the red house on the hill", "a red house", "stock prices fell", ""})
		Expect(err).NotTo(HaveOccurred())
		dot := func(a, b []float32) (sum float32) {
			for i := range a {
				sum += a[i] * b[i]
			}
			return sum
		}
		v := out.Vectors
		Expect(dot(v[0], v[0])).To(BeNumerically("~", 1, 1e-5))
		Expect(dot(v[0], v[1])).To(BeNumerically(">", dot(v[0], v[2])+0.2))
		Expect(v[3]).To(HaveLen(len(v[0])))
		Expect(out.Usage.InputTokens).To(Equal(int64(12)))
	})
})
