package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

func TestRedact(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "redact")
}

const secret = `p"a\ss<w&ör d/1+2?`

var _ = Describe("A registry", Label("ENV-03"), func() {
	var r *redact.Registry
	var clock *clocktesting.FakeClock
	BeforeEach(func() {
		clock = clocktesting.NewFakeClock(time.Unix(1e9, 0))
		r = redact.NewRegistry(clock)
	})

	DescribeTable("finds a value in every encoding", func(form func(string) string) {
		r.Register("ns", "KEY", secret)
		for _, around := range []string{"%s", "before %s after", "x%s", "%sx", "%s%[1]s"} {
			text := fmt.Sprintf(around, form(secret))
			clean := r.Text("ns", text)
			Expect(clean).To(ContainSubstring("[redacted]"), text)
			Expect(clean).NotTo(ContainSubstring(form(secret)))
			Expect(r.AnyText(text)).To(Equal(clean))
			Expect(r.Text("", text)).To(Equal(text), "of no namespace: it could be a guess at a secret of any of them")
			Expect(r.Text("other", text)).To(Equal(text), "of another namespace")
		}
	},
		Entry("in plain text", func(s string) string { return s }),
		Entry("in JSON as Go writes it", func(s string) string { b, _ := json.Marshal(s); return string(b) }),
		Entry("in JSON within JSON", func(s string) string {
			b, _ := json.Marshal(s)
			b, _ = json.Marshal(string(b))
			return string(b)
		}),
		Entry("in a query", url.QueryEscape),
		Entry("in a path", url.PathEscape),
		Entry("in lowercase percent escapes", func(s string) string { return strings.ToLower(url.PathEscape(s)) }),
		Entry("in HTML", html.EscapeString),
		Entry("in hexadecimal", func(s string) string { return hex.EncodeToString([]byte(s)) }),
		Entry("in base64", func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }),
		Entry("in base64 for URLs", func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) }),
		Entry("in base64 without padding", func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }),
	)

	It("finds a value within base64, at every offset", func() {
		r.Register("ns", "KEY", secret)
		for i := range 6 {
			text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("y", i) + secret + "and more"))
			Expect(r.Text("ns", text)).To(ContainSubstring("[redacted]"), "offset %d", i)
		}
	})

	It("prefers the longest of several values", func() {
		r.Register("ns", "SHORT", "abcdefg")
		r.Register("ns", "LONG", "abcdefghij")
		Expect(r.Text("ns", "abcdefghij abcdefg")).To(Equal("[redacted] [redacted]"))
	})

	It("does not say which secret it was", func() {
		r.Register("ns", "tool/payments/auth", "open-sesame")
		Expect(r.Text("ns", "say open-sesame")).To(Equal("say [redacted]"))
	})

	It("finds a longer value by its first 64 bytes", func() {
		long := strings.Repeat("k", 63) + "é and more"
		r.Register("ns", "LONG", long)
		Expect(r.Text("ns", "a "+long+" b")).To(Equal("a [redacted] b"))
		Expect(r.Text("ns", "a "+long[:65]+" b")).To(Equal("a [redacted] b"), "and no half character")
		Expect(r.Text("ns", long[:63])).To(Equal(long[:63]))
	})

	It("ignores values that are too short, and no others", func() {
		r.Register("ns", "PIN", "1234")
		Expect(r.Text("ns", "pin 1234")).To(Equal("pin 1234"))
		Expect(r.HasSecrets("ns")).To(BeFalse())
		r.Register("ns", "SIX", " 123456\n")
		Expect(r.Text("ns", "123456")).To(Equal("[redacted]"))
	})

	It("keeps JSON valid, wherever the value was", func() {
		r.Register("ns", "N", "123456")
		for in, want := range map[string]string{
			`{"a":1234567,"b":"x123456","123456":[123456]}`: `{"a":"[redacted]7","b":"x[redacted]","[redacted]":["[redacted]"]}`,
			`"\u0031\u0032\u0033\u0034\u0035\u0036"`:        `"[redacted]"`,
			`{"a":"nothing\u00e9"}`:                         `{"a":"nothing\u00e9"}`,
		} {
			Expect(r.JSON("ns", []byte(in))).To(MatchJSON(want))
		}
	})

	It("delays a stream by 64 bytes", func() {
		r.Register("ns", "KEY", "sesame-open")
		s := r.Open("ns")
		Expect(s.Next("it is sesame-open")).To(BeEmpty())
		Expect(s.Next(strings.Repeat(".", 70))).To(Equal("it is [redacted]......"))
		Expect(s.End()).To(Equal(strings.Repeat(".", 64)))
		Expect(s.Next("x")+s.End()).To(Equal("x"), "a stream that ended begins anew")
		Expect(r.Open("other").Next("sesame-open")).To(Equal("sesame-open"), "a namespace without secrets needs no delay")
	})

	It("shows text at the same time whether or not it begins like a value", func() {
		rapid.Check(GinkgoT(), func(t *rapid.T) {
			r := redact.NewRegistry(nil)
			value := rapid.StringMatching(`[ab]{6,100}`).Draw(t, "value")
			r.Register("ns", "K", value)
			// A guess that is right up to its last letter, and one that is wrong from its first.
			right := value[:min(len(value), 64)-1]
			wrong := strings.Repeat("z", len(right))
			before, after := rapid.StringMatching(`[xy]{0,90}`).Draw(t, "before"), rapid.StringMatching(`[xy]{0,90}`).Draw(t, "after")
			var a, b = r.Open("ns"), r.Open("ns")
			with, without := before+right+after, before+wrong+after
			for len(with) > 0 {
				n := rapid.IntRange(1, len(with)).Draw(t, "n")
				if x, y := a.Next(with[:n]), b.Next(without[:n]); len(x) != len(y) {
					t.Fatalf("%q is shown when %q is", x, y)
				}
				with, without = with[n:], without[n:]
			}
		})
	})

	It("leaves out what follows the beginning of a long value, also when it is not the rest", func() {
		value := strings.Repeat("0123456789", 10)
		r.Register("ns", "K", value)
		other := value[:70] + strings.Repeat("x", 30)
		for _, text := range []string{value, other} {
			s := r.Open("ns")
			Expect(s.Next("a "+text+" b"+strings.Repeat(".", 70))+s.End()).To(Equal("a [redacted] b"+strings.Repeat(".", 70)), text)
			var slow string
			for _, c := range []byte("a " + text + " b") {
				slow += s.Next(string([]byte{c}))
			}
			Expect(slow+s.End()).To(Equal("a [redacted] b"), text)
		}
	})

	It("shows whole lines at once where that is asked for, unless a value has several lines", func() {
		r.Register("ns", "K", "sesame-open")
		s := r.OpenLines("ns")
		Expect(s.Next("data: sesame-open\n\ndata: 2")).To(Equal("data: [redacted]\n\n"))
		Expect(s.Next("\n")).To(Equal("data: 2\n"))
		r.Register("ns", "PEM", "one line\nand another")
		Expect(s.Next("data: 3\n")).To(BeEmpty())
	})

	It("never shows a value of a stream, however the stream is split, and no half characters", func() {
		rapid.Check(GinkgoT(), func(t *rapid.T) {
			r := redact.NewRegistry(nil)
			value := rapid.StringMatching(`[abé]{6,90}`).Draw(t, "value")
			r.Register("ns", "K", value)
			text := rapid.StringMatching(`[abé\n]{0,80}`).Draw(t, "before") + value + rapid.StringMatching(`[abé\n]{0,80}`).Draw(t, "after")
			s := r.Open("ns")
			if rapid.Bool().Draw(t, "lines") {
				s = r.OpenLines("ns")
			}
			var shown string
			for rest := []rune(text); len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "n")
				piece := s.Next(string(rest[:n]))
				if !utf8.ValidString(piece) {
					t.Fatalf("%q has half a character", piece)
				}
				shown += piece
				rest = rest[n:]
			}
			shown += s.End()
			if strings.Contains(shown, value) || !strings.Contains(shown, redact.Mark) {
				t.Fatalf("%q shows %q", shown, value)
			}
		})
	})

	It("forgets a value that was not registered for a day", func() {
		r.Register("ns", "OLD", "old-value")
		clock.Step(23 * time.Hour)
		r.Register("ns", "OLD", "old-value")
		clock.Step(23 * time.Hour)
		r.Register("ns", "NEW", "new-value")
		Expect(r.Text("ns", "old-value")).To(Equal("[redacted]"))
		clock.Step(2 * time.Hour)
		r.Register("ns", "NEWER", "newer-value")
		Expect(r.Text("ns", "old-value new-value")).To(Equal("old-value [redacted]"))
		clock.Step(48 * time.Hour)
		r.Register("other", "X", "something")
		Expect(r.HasSecrets("ns")).To(BeFalse())
	})

	It("does nothing when it is nil", func() {
		var none *redact.Registry
		none.Register("ns", "A", "abcdefgh")
		Expect(none.Text("ns", "abcdefgh") + none.AnyText("abcdefgh")).To(Equal("abcdefghabcdefgh"))
		Expect(string(none.JSON("ns", []byte(`"abcdefgh"`)))).To(Equal(`"abcdefgh"`))
	})
})

var _ = Describe("Redaction", Label("ENV-03"), func() {
	var r *redact.Registry
	BeforeEach(func() {
		r = redact.NewRegistry(nil)
		r.Register("ns", "KEY", "open-sesame")
	})

	It("cleans records, but not shared maps and structural fields", func() {
		shared := map[string]any{"note": "open-sesame", "list": []any{"open-sesame", 1.0}}
		content := "say open-sesame"
		m := store.Message{ID: "id-open-sesame", Role: "open-sesame", Name: "open-sesame", Content: &content, Metadata: shared,
			ToolCalls: []store.ToolCall{{Name: "open-sesame", Arguments: `{"a":"open-sesame"}`}}, Usage: json.RawMessage(`{"x":"open-sesame"}`)}
		r.Value("ns", &m)
		Expect(*m.Content).To(Equal("say [redacted]"))
		Expect(content).To(Equal("say open-sesame"))
		Expect(shared["note"]).To(Equal("open-sesame"))
		Expect(m.Metadata).To(Equal(map[string]any{"note": "[redacted]", "list": []any{"[redacted]", 1.0}}))
		Expect(m.ID).To(Equal("id-[redacted]"))
		Expect(m.Name).To(Equal("open-sesame"))
		Expect(m.Role).To(BeEquivalentTo("open-sesame"))
		Expect(m.ToolCalls[0]).To(Equal(store.ToolCall{Name: "open-sesame", Arguments: `{"a":"[redacted]"}`}))
	})

	It("keeps the database free of values", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		inner, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(inner.Close)
		s := redact.NewStore(inner, r)
		for _, ns := range []string{"ns", "other"} {
			_, _, err = s.CreateThread(ctx, store.Thread{ID: ns, Namespace: ns, Agent: "a", Title: "open-sesame", Arguments: json.RawMessage(`{"k":"open-sesame"}`)})
			Expect(err).NotTo(HaveOccurred())
		}
		text := "open-sesame"
		payload, err := json.Marshal(store.Message{ID: "q", Role: store.RoleUser, Content: &text})
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Apply(ctx, "ns", nil,
			&store.AppendMessage{Message: &store.Message{ID: "m", Role: store.RoleUser, Content: &text}},
			&store.Enqueue{Item: store.InboxItem{Key: "open-sesame", Kind: store.InboxMessage, Payload: payload}},
			&store.PutValue{Key: "open-sesame", Value: json.RawMessage(`"b3Blbi1zZXNhbWU="`)},
			&store.PutFile{File: store.File{Path: "/open-sesame.txt", Dir: true}},
			&store.AppendEvent{Event: store.Event{Type: "event:open-sesame", Data: json.RawMessage(`{"v":"open-sesame"}`)}},
			&store.PutRun{Run: store.Run{ID: "r", Status: store.RunFailed, Message: "no open-sesame"}},
		)).To(Succeed())
		stored, err := inner.Thread(ctx, "ns")
		Expect(err).NotTo(HaveOccurred())
		Expect(stored.Title).To(Equal("[redacted]"))
		Expect(s.Value(ctx, "ns", "open-sesame")).To(MatchJSON(`"[redacted]"`))
		Expect(inner.Value(ctx, "ns", "[redacted]")).To(MatchJSON(`"[redacted]"`))
		Expect(s.InboxItem(ctx, "ns", "open-sesame")).To(HaveField("Key", "[redacted]"))
		f, err := s.File(ctx, "ns", "/open-sesame.txt")
		Expect(err).NotTo(HaveOccurred())
		Expect(f.Path).To(Equal("/[redacted].txt"))
		Expect(s.Apply(ctx, "ns", nil, &store.PutFile{File: store.File{Path: "/open-sesame.txt/in", Dir: true}})).To(Succeed())
		Expect(s.FilesPage(ctx, "ns", store.FileQuery{Folder: "/open-sesame.txt"})).To(HaveExactElements(HaveField("Path", "/[redacted].txt/in")))
		events, err := inner.Events(ctx, "ns", 0, 100)
		Expect(err).NotTo(HaveOccurred())
		data, err := json.Marshal(events)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data)).NotTo(ContainSubstring("open-sesame"))
		Expect(string(data)).To(ContainSubstring("event:[redacted]"))
		other, err := s.Thread(ctx, "other")
		Expect(err).NotTo(HaveOccurred())
		Expect(other.Title).To(Equal("open-sesame"), "another namespace's text")
	})

	It("keeps firings and what they are given free of values", Label("EFF-04"), func(ctx SpecContext) {
		inner, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(inner.Close)
		s := redact.NewStore(inner, r)
		data, clean := json.RawMessage(`{"k":"open-sesame"}`), `{"k":"[redacted]"}`
		firing := func(due int64, status store.FiringStatus) store.Firing {
			return store.Firing{EffectID: "open-sesame", Due: due, Namespace: "ns", Status: status, Args: data, Target: data}
		}
		Expect(s.RecordFiring(ctx, firing(1, store.FiringPending))).To(BeTrue())
		due := []store.Firing{firing(2, store.FiringRunning)}
		Expect(s.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "open-sesame", Namespace: "ns"}, Firings: due})).To(Succeed())
		Expect(due[0].Args).To(MatchJSON(data), "the caller's record")
		Expect(s.ClaimFirings(ctx, "a", time.Minute, map[string]int{"ns": 1})).To(HaveLen(1))
		end := func(due int64) store.FiringEnd {
			return store.FiringEnd{Key: store.FiringKey{EffectID: "open-sesame", Due: due}, Namespace: "ns", Epoch: 1, Status: store.FiringFailed, Error: "no open-sesame", Log: "open-sesame", Waiting: "open-sesame"}
		}
		Expect(s.FinishFiring(ctx, end(1))).To(Succeed())
		Expect(s.EndRunning(ctx, end(2))).To(Succeed())
		firings, err := inner.Firings(ctx, store.FiringQuery{EffectID: "open-sesame"})
		Expect(err).NotTo(HaveOccurred())
		Expect(firings).To(HaveLen(2))
		Expect(firings).To(HaveEach(And(HaveField("Args", MatchJSON(clean)), HaveField("Target", MatchJSON(clean)), HaveField("Error", "no [redacted]"))))
		Expect(firings[1]).To(And(HaveField("Log", "[redacted]"), HaveField("Waiting", "[redacted]")))

		Expect(s.PutEffectArgs(ctx, store.EffectArgs{ID: "open-sesame", Namespace: "ns", Args: data})).To(Succeed())
		Expect(inner.EffectArgs(ctx, "", "open-sesame")).To(MatchJSON(clean))
	})

	It("finds a value that is split over the pieces of an answer", func(ctx SpecContext) {
		inner, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(inner.Close)
		s := redact.NewStore(inner, r)
		_, _, err = s.CreateThread(ctx, store.Thread{ID: "t", Namespace: "ns", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		for _, piece := range []string{"it is open", "-ses", "ame!", strings.Repeat(" ", 64)} {
			data, err := json.Marshal(map[string]string{"text": piece})
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Apply(ctx, "t", nil, &store.AppendEvent{Event: store.Event{Type: store.EventDelta, MessageID: "m", Data: data}})).To(Succeed())
		}
		events, err := inner.Events(ctx, "t", 0, 100)
		Expect(err).NotTo(HaveOccurred())
		var all string
		for _, e := range events {
			var d struct{ Text string }
			Expect(json.Unmarshal(e.Data, &d)).To(Succeed())
			all += d.Text
		}
		Expect(all).To(Equal("it is [redacted]!"), "64 bytes late")
	})

	It("keeps logs free of values", func() {
		var lines []string
		log := redact.NewLogger(funcr.New(func(prefix, args string) { lines = append(lines, prefix+args) }, funcr.Options{}), r)
		log = log.WithName("n").WithValues("with", "open-sesame")
		log.Info("say open-sesame", "text", "open-sesame", "struct", struct{ A string }{"open-sesame"}, "err", errors.New("open-sesame"), "n", 1)
		log.Error(fmt.Errorf("wrapped: %w", errors.New("open-sesame")), "failed", "bytes", []string{"open-sesame"})
		Expect(lines).To(HaveLen(2))
		Expect(strings.Join(lines, "\n")).NotTo(ContainSubstring("open-sesame"))
		Expect(strings.Count(strings.Join(lines, "\n"), "[redacted]")).To(Equal(8))
	})

	It("cleans specs and statuses of Skein's objects", func() {
		t := &skeinv1.ThreadStatus{LastRun: &skeinv1.RunStatus{Reason: "ToolFailed", Message: "no open-sesame"}}
		r.Value("ns", t)
		Expect(t.LastRun.Message).To(Equal("no [redacted]"))
	})
})

func BenchmarkText(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog, 0123456789. ", 180)[:10<<10]
	for _, n := range []int{0, 1, 100, 10000} {
		r := redact.NewRegistry(nil)
		for i := range n {
			r.Register("ns", fmt.Sprint("KEY_", i), fmt.Sprintf("sk-%d-%x", i*7919, i*104729))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Text("ns", text)
			}
		})
	}
}
