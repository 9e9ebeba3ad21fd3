package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// view gives "role content" of each message that a request has behind the system prompt.
func view(req model.Request) (out []string) {
	for _, m := range req.Messages[1:] {
		text := string(m.Role) + " " + m.Content
		for _, c := range m.ToolCalls {
			text += "->" + c.Name
		}
		out = append(out, text)
	}
	return out
}

// pictureFile is a PNG of noise, which does not get smaller by being a PNG.
func pictureFile(side int) []byte {
	img := image.NewNRGBA(image.Rect(0, 0, side, side))
	for i := range img.Pix {
		img.Pix[i] = byte(rand.IntN(256))
	}
	img.SetNRGBA(0, 0, color.NRGBA{A: 255})
	var out bytes.Buffer
	Expect((&png.Encoder{CompressionLevel: png.NoCompression}).Encode(&out, img)).To(Succeed())
	return out.Bytes()
}

var _ = Describe("What a model reads", Label("AGT-05"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	events := func(ctx context.Context, id, kind string) (out []map[string]any) {
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

	It("is all of the conversation, the present turn alone, or all without the tools of earlier turns", func(ctx SpecContext) {
		answer := func(_ int, req model.Request) *model.Response {
			if req.Messages[len(req.Messages)-1].Role == model.RoleUser {
				return toolCall("get_value", `{"key":"k"}`)
			}
			return &model.Response{Content: "said"}
		}
		for _, c := range []struct {
			chat, past *bool
			want       []string
		}{
			{nil, nil, []string{"user one", "assistant ->get_value", "tool null", "assistant said", "user two", "assistant ->get_value", "tool null"}},
			{ptr.To(false), nil, []string{"user two", "assistant ->get_value", "tool null"}},
			{nil, ptr.To(false), []string{"user one", "assistant said", "user two", "assistant ->get_value", "tool null"}},
		} {
			w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), withPrompt(func(p *skeinv1.PromptSpec) { p.IncludeChat, p.IncludePastTools = c.chat, c.past }))
			m := listening(w, answer)
			_, stop := start(w)
			id := makeThread(ctx, w, "a")
			for _, text := range []string{"one", "two"} {
				send(ctx, w, id, text)
				rest(ctx, w, id)
			}
			stop()
			all := m.requests()
			Expect(view(all[len(all)-1])).To(Equal(c.want))
		}
	})

	It("comes with what the prompt asks of the model, as far as it can that", func(ctx SpecContext) {
		m := listening(w, func(int, model.Request) *model.Response {
			return &model.Response{Content: `{"n":1}`, Reasoning: "thinking of secrets"}
		})
		put := func(can *skeinv1.ModelCapabilities) {
			w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), withPrompt(func(p *skeinv1.PromptSpec) {
				p.Reasoning = &skeinv1.PromptReasoning{MaxTokens: ptr.To[int64](512), Exclude: true}
				p.ResponseSchema = schemaOf(`{"type":"object","required":["n"]}`)
				p.ToolChoice, p.ParallelToolCalls = "required", true
			}), func(a *definition.Agent) { a.A.Prompt.Name, a.A.Model.Spec.Capabilities = "my.prompt", can })
		}
		put(nil)
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		req := m.requests()[0]
		Expect(req.Reasoning).To(Equal(&model.Reasoning{MaxTokens: 512, Exclude: true}))
		Expect(req.Schema).To(MatchJSON(`{"type":"object","required":["n"]}`))
		Expect(req.SchemaName).To(Equal("my_prompt"))
		Expect(req.ToolChoice).To(Equal(model.ToolChoiceRequired))
		Expect(req.ParallelToolCalls).To(HaveValue(BeTrue()))
		messages, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(messages[1].ReasoningContent).To(BeEmpty(), "what is excluded is kept out of the log")

		put(&skeinv1.ModelCapabilities{Reasoning: ptr.To(false), StructuredOutput: ptr.To(false), ParallelToolCalls: ptr.To(false)})
		send(ctx, w, id, "again")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		req = m.requests()[1]
		Expect(req.Reasoning).To(BeNil())
		Expect(req.Schema).To(BeEmpty())
		Expect(req.ParallelToolCalls).To(BeNil())
		Expect(req.Messages[0].Content).To(And(HavePrefix("You are a test."), HaveSuffix(`{"type":"object","required":["n"]}`)), "it is told in words")
	})

	Describe("of a model whose window is known", func() {
		small := func(tokens int64) func(*definition.Agent) {
			return func(a *definition.Agent) {
				a.A.Model.Spec.Capabilities = &skeinv1.ModelCapabilities{ContextWindow: tokens, MaxOutputTokens: 100}
			}
		}
		It("leaves out the oldest turns whole, and the log says how much", func(ctx SpecContext) {
			w.Definitions.Put("a", small(700))
			m := listening(w, says("fine"))
			start(w)
			id := makeThread(ctx, w, "a")
			for i := range 8 {
				send(ctx, w, id, fmt.Sprintf("%d %s", i, strings.Repeat("x", 400)))
				Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			}
			all := m.requests()
			last := all[len(all)-1]
			Expect(last.Messages[0].Content).To(Equal("You are a test."))
			Expect(last.Messages[1].Role).To(Equal(model.RoleUser))
			Expect(last.Messages[len(last.Messages)-1].Content).To(HavePrefix("7 "))
			leftOut := 15 - (len(last.Messages) - 1)
			Expect(leftOut).To(BeNumerically(">", 4))
			trimmed := events(ctx, id, store.EventContextTrimmed)
			Expect(trimmed[len(trimmed)-1]).To(And(HaveKeyWithValue("leftOut", BeEquivalentTo(leftOut)), HaveKeyWithValue("contextWindow", BeEquivalentTo(700))))
			Expect(w.Messages(ctx, id)).To(HaveLen(16), "the log has all of it")
		})

		It("learns from the provider how it counts", func(ctx SpecContext) {
			w.Definitions.Put("a", small(2000))
			m := listening(w, func(int, model.Request) *model.Response {
				return &model.Response{Content: "fine", Usage: &model.Usage{InputTokens: 1500}} // of about 1,160 estimated
			})
			start(w)
			id := makeThread(ctx, w, "a")
			for _, text := range []string{strings.Repeat("x", 4000), strings.Repeat("y", 2000)} {
				send(ctx, w, id, text)
				Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			}
			Expect(view(m.requests()[1])).To(HaveLen(1), "by the estimate alone all three messages would fit")
		})

		It("fails the turn, saying what to do, where not even the newest turn fits", func(ctx SpecContext) {
			w.Definitions.Put("a", small(600))
			m := listening(w, says("never"))
			start(w)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, strings.Repeat("x", 4000))
			r := rest(ctx, w, id)
			Expect(r.Reason).To(Equal(skeinv1.ReasonContextTooLarge))
			Expect(r.Message).To(And(ContainSubstring("more than the 500"), ContainSubstring("spec.capabilities.contextWindow")))
			Expect(m.requests()).To(BeEmpty())
		})
	})

	Describe("of images", func() {
		attach := func(ctx context.Context, id, text, path string, data []byte) {
			GinkgoHelper()
			st, err := w.Threads.Open(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			rec, err := st.WriteFile(ctx, path, bytes.NewReader(data), thread.WriteFileOptions{MimeType: "image/png"})
			Expect(err).NotTo(HaveOccurred())
			_, err = st.Queue(ctx, thread.NewMessage{Content: &text, Attachments: []store.Attachment{{Path: rec.Path, MimeType: rec.MimeType, Size: rec.Size}}})
			Expect(err).NotTo(HaveOccurred())
			rest(ctx, w, id)
		}
		It("is of the newest messages their bytes, of older ones their names", func(ctx SpecContext) {
			w.Definitions.Put("a", withPrompt(func(p *skeinv1.PromptSpec) { p.RecentImageThreshold = ptr.To[int32](3) }))
			m := listening(w, says("seen"))
			start(w)
			id := makeThread(ctx, w, "a")
			first, second, huge := pictureFile(8), pictureFile(9), pictureFile(1100)
			Expect(len(huge)).To(BeNumerically(">", 3<<20))
			attach(ctx, id, "one", "/a.png", first)
			attach(ctx, id, "two", "/b.png", second)
			attach(ctx, id, "three", "/c.png", huge)
			all := m.requests()
			Expect(all[0].Messages[1].Images).To(HaveLen(1))
			Expect(all[0].Messages[1].Images[0].Read(ctx)).To(Equal(first))
			Expect(all[0].Messages[1].Text()).To(ContainSubstring("/a.png (image/png"))
			Expect(all[2].Messages[1].Images).To(BeEmpty())
			Expect(all[2].Messages[1].Text()).To(ContainSubstring("/a.png (image/png"))
			Expect(all[2].Messages[3].Images[0].Read(ctx)).To(Equal(second))
			smaller, err := all[2].Messages[5].Images[0].Read(ctx)
			Expect(err).NotTo(HaveOccurred())
			shown, _, err := image.Decode(bytes.NewReader(smaller))
			Expect(err).NotTo(HaveOccurred())
			Expect(shown.Bounds().Dx()).To(Equal(thread.MaxThumbnail))

			st, err := w.Threads.Open(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(st.Unlink(ctx, "/c.png")).To(Succeed())
			send(ctx, w, id, "four")
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			Expect(m.requests()[3].Messages[5].Images).To(BeEmpty(), "a file that is gone stays a name")
		})
		It("is its name alone where its contents are lost", func(ctx SpecContext) {
			w.Definitions.Put("a")
			m := listening(w, says("seen"))
			start(w)
			id := makeThread(ctx, w, "a")
			var photo bytes.Buffer
			Expect(jpeg.Encode(&photo, image.NewYCbCr(image.Rect(0, 0, 8, 8), image.YCbCrSubsampleRatio420), nil)).To(Succeed())
			attach(ctx, id, "one", "/a.jpg", photo.Bytes())
			Expect(m.requests()[0].Messages[1].Images).To(HaveLen(1))
			Expect(w.LoseContents(ctx)).To(Succeed())
			send(ctx, w, id, "two")
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			Expect(m.requests()[1].Messages[1].Images).To(BeEmpty())
		})
		It("is of the type that their bytes have, whatever their names say, and of no more pixels than providers accept", func(ctx SpecContext) {
			w.Definitions.Put("a")
			m := listening(w, says("seen"))
			start(w)
			id := makeThread(ctx, w, "a")
			tall := image.NewPaletted(image.Rect(0, 0, 10, 9000), color.Palette{color.Black, color.White})
			var photo, column, late bytes.Buffer
			Expect(jpeg.Encode(&photo, image.NewYCbCr(image.Rect(0, 0, 8, 8), image.YCbCrSubsampleRatio420), nil)).To(Succeed())
			Expect(png.Encode(&column, tall)).To(Succeed())
			late.Write(photo.Bytes()[:2])
			for range 5 { // comments before the size, longer than what is looked at when a file is written
				late.Write([]byte{0xff, 0xfe, 0xff, 0xff})
				late.Write(make([]byte, 0xffff-2))
			}
			late.Write(photo.Bytes()[2:])
			attach(ctx, id, "one", "/a.png", photo.Bytes())
			attach(ctx, id, "two", "/b.png", []byte("no image at all"))
			attach(ctx, id, "three", "/c.png", column.Bytes())
			attach(ctx, id, "four", "/d.png", late.Bytes())
			attach(ctx, id, "five", "/e.png", column.Bytes()[:20])
			messages := m.requests()[4].Messages
			Expect(messages[1].Images).To(ConsistOf(HaveField("MimeType", "image/jpeg")))
			Expect(messages[1].Images[0].Read(ctx)).To(Equal(photo.Bytes()))
			Expect(messages[3].Images).To(BeEmpty())
			Expect(messages[3].Text()).To(ContainSubstring("/b.png"))
			Expect(messages[5].Images).To(ConsistOf(HaveField("MimeType", "image/png")))
			smaller, err := messages[5].Images[0].Read(ctx)
			Expect(err).NotTo(HaveOccurred())
			shown, _, err := image.DecodeConfig(bytes.NewReader(smaller))
			Expect(err).NotTo(HaveOccurred())
			Expect(shown.Height).To(Equal(thread.MaxThumbnail))
			Expect(messages[7].Images).To(ConsistOf(HaveField("MimeType", "image/jpeg")), "its record has no size")
			Expect(messages[9].Images).To(BeEmpty(), "a broken image")
		})
		It("is their names alone where the model cannot see", func(ctx SpecContext) {
			w.Definitions.Put("a", func(a *definition.Agent) {
				a.A.Model.Spec.Capabilities = &skeinv1.ModelCapabilities{Vision: ptr.To(false)}
			})
			m := listening(w, says("blind"))
			start(w)
			id := makeThread(ctx, w, "a")
			attach(ctx, id, "look", "/a.png", pictureFile(8))
			Expect(m.requests()[0].Messages[1].Images).To(BeEmpty())
			Expect(m.requests()[0].Messages[1].Text()).To(ContainSubstring("/a.png"))
		})
	})

	Describe("of what is wrong with its answer", func() {
		put := func() {
			w.Definitions.Put("a", withPrompt(func(p *skeinv1.PromptSpec) {
				p.ResponseSchema = schemaOf(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)
			}))
		}
		It("is said once, and the next answer counts", func(ctx SpecContext) {
			put()
			m := listening(w, func(call int, _ model.Request) *model.Response {
				return &model.Response{Content: []string{`{"n":"one"}`, "```json\n{\"n\":1}\n```"}[call]}
			})
			start(w)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			Expect(view(m.requests()[1])).To(Equal([]string{"user go", `assistant {"n":"one"}`,
				"user Your answer does not fit the JSON Schema that it must have: /n: got string, want integer. Answer again with JSON alone that fits it."}))
			messages, err := w.Messages(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(messages).To(HaveLen(4))
			Expect(messages[2].Silent).To(BeTrue())
			Expect(messages[2].Metadata).To(HaveKeyWithValue("repairs", messages[1].ID))
			Expect(messages[3].Content).To(HaveValue(Equal(`{"n":1}`)), "without the fence")
		})
		It("is said once only: then the turn fails", func(ctx SpecContext) {
			put()
			m := listening(w, says("no JSON"))
			start(w)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			r := rest(ctx, w, id)
			Expect(r.Status).To(Equal(store.RunFailed))
			Expect(r.Reason).To(Equal(skeinv1.ReasonInvalidAnswer))
			Expect(r.Message).To(ContainSubstring("not valid JSON"))
			Expect(m.requests()).To(HaveLen(2))
		})
	})
})
