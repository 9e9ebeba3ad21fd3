package thread_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("export and import", func() {
	// Draw texts as people and models write them, and others.
	words := rapid.OneOf(rapid.String().Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }),
		rapid.SampledFrom([]string{"", "\n", "<a href=\"x\">&", "\u2028", "😀", `\`, strings.Repeat("long ", 20_000)}))
	arguments := rapid.OneOf(rapid.Just(""), rapid.Just("{}"), rapid.Just(` { "a" : [1, 2] } `), rapid.Just("[1]"), rapid.Just("not JSON"), rapid.Just(`{"n":1e400}`),
		rapid.Custom(func(t *rapid.T) string {
			data, err := json.Marshal(map[string]string{words.Draw(t, "key"): words.Draw(t, "value")})
			Expect(err).NotTo(HaveOccurred())
			return string(data)
		}))

	It("round-trip for any log: an imported thread exports the same bytes", Label("LOG-02"), func(ctx SpecContext) {
		e := newEnv(ctx)
		n := 0
		export := func(st *thread.State) []byte {
			GinkgoHelper()
			var out bytes.Buffer
			_, err := st.Export(ctx, &out)
			Expect(err).NotTo(HaveOccurred())
			return out.Bytes()
		}
		rapid.Check(GinkgoT(), func(t *rapid.T) {
			n++
			from := e.create(ctx, fmt.Sprintf("from-%d", n))
			if rapid.Bool().Draw(t, "destroyed before") {
				logged(ctx, from, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: ptr("gone")}}, &store.Destroy{Reason: store.DestroyedExplicit})
			}
			for i := range rapid.IntRange(0, 8).Draw(t, "entries") {
				e.clock.Step(1_000_001) // a millisecond and a bit
				if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
					r := store.Run{ID: fmt.Sprintf("sess_%032x", n*100+i), ThreadID: from.ID(), Agent: "helper", Status: store.RunRunning, StartedAt: e.clock.Now().UnixMicro()}
					ended := r
					ended.Status, ended.EndedAt, ended.Steps = store.RunSucceeded, r.StartedAt+rapid.Int64Range(0, 1e9).Draw(t, "took"), rapid.IntRange(0, 9).Draw(t, "steps")
					var err error
					ended.Usage, err = json.Marshal(store.RunUsage{Cost: rapid.Float64Range(0, 10).Draw(t, "cost"), InputTokens: rapid.Int64Range(0, 1e9).Draw(t, "tokens")})
					Expect(err).NotTo(HaveOccurred())
					logged(ctx, from, &store.PutRun{Run: r}, &store.PutRun{Run: ended})
					continue
				}
				m := &store.Message{Role: rapid.SampledFrom([]store.Role{store.RoleUser, store.RoleAssistant, store.RoleSystem, store.RoleTool}).Draw(t, "role")}
				m.Content, m.Silent = ptr(words.Draw(t, "text")), rapid.Bool().Draw(t, "silent")
				switch m.Role {
				case store.RoleAssistant:
					m.Side = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "side")
					for c := range rapid.IntRange(0, 2).Draw(t, "calls") {
						m.ToolCalls = append(m.ToolCalls, store.ToolCall{ID: fmt.Sprint("c", c), Name: "look", Arguments: arguments.Draw(t, "arguments")})
					}
				case store.RoleTool:
					m.ToolCallID, m.Name, m.ToolStatus = "c0", "look", "success"
				}
				logged(ctx, from, &store.AppendMessage{Message: m})
			}
			first := export(from)
			into := e.create(ctx, fmt.Sprintf("into-%d", n))
			_, err := into.Import(ctx, bytes.NewReader(first))
			Expect(err).NotTo(HaveOccurred(), "%s", first)
			Expect(string(export(into))).To(Equal(string(first)))
		})
	})

	It("draw what they have in memory, and return it", Label("K8S-12", "LOG-01", "LOG-02"), func(ctx SpecContext) {
		e := newEnv(ctx)
		from, into := e.create(ctx, "from"), e.create(ctx, "into")
		for range 40 {
			logged(ctx, from, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: ptr(strings.Repeat("x", 200<<10))}})
		}
		budget := membudget.New(16<<20, time.Millisecond)
		work, done := budget.Begin(ctx, "ns")
		defer done()
		most := int64(0)
		var out bytes.Buffer
		_, err := from.Export(work, writes(func(p []byte) (int, error) {
			most = max(most, budget.Used())
			return out.Write(p)
		}))
		Expect(err).NotTo(HaveOccurred())
		Expect(most).To(And(BeNumerically(">", 400<<10), BeNumerically("<", 5<<20)), "8 MiB were written")
		Expect(budget.Used()).To(BeZero())

		_, err = into.Import(work, &out)
		Expect(err).NotTo(HaveOccurred())
		Expect(budget.Used()).To(BeZero())

		other := budget.Open("ns")
		Expect(other.TryDraw(6 << 20)).To(Succeed())
		defer other.Close()
		bomb := `{"type":"manifest"}` + "\n" + `{"type":"result","x":[` + strings.Repeat("{},", 10_000) + "{}]}\n"
		_, err = e.create(ctx, "bomb").Import(work, strings.NewReader(bomb))
		Expect(membudget.Refused(err)).To(BeTrue(), "%v", err)
		Expect(membudget.From(work).Drawn()).To(BeZero())
	})

	It("keep messages with null bytes and invalid UTF-8", Label("LOG-02"), func(ctx SpecContext) {
		e := newEnv(ctx)
		from, to := e.create(ctx, "from"), e.create(ctx, "to")
		logged(ctx, from, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Name: "a\x00da", Content: ptr("a\x00b\xff")}})
		logged(ctx, from, &store.AppendMessage{Message: &store.Message{Role: store.RoleAssistant, Content: ptr("c\x00d"),
			ToolCalls: []store.ToolCall{{ID: "1", Name: "look", Arguments: `{"a":"\u0000"}`}}}})
		var out bytes.Buffer
		_, err := from.Export(ctx, &out)
		Expect(err).NotTo(HaveOccurred())
		Expect(out.String()).To(ContainSubstring("a\uFFFDb"))
		_, err = to.Import(ctx, &out)
		Expect(err).NotTo(HaveOccurred())
	})

	It("begin after the last destruction", Label("LOG-01"), func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t1")
		end := func(i int) []store.Op {
			r := store.Run{ID: fmt.Sprintf("sess_%032x", i), ThreadID: "t1", Agent: "helper", Status: store.RunRunning, StartedAt: 1}
			ended := r
			ended.Status, ended.EndedAt, ended.Steps = store.RunSucceeded, 2, i
			return []store.Op{&store.PutRun{Run: r}, &store.PutRun{Run: ended}}
		}
		for i := range 60 { // more than a page
			logged(ctx, st, append(end(i), &store.Destroy{Reason: store.DestroyedExplicit})...)
		}
		logged(ctx, st, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: ptr("anew")}})
		logged(ctx, st, end(77)...)
		var out bytes.Buffer
		_, err := st.Export(ctx, &out)
		Expect(err).NotTo(HaveOccurred())
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		Expect(lines).To(HaveLen(3), out.String())
		Expect(lines[1]).To(ContainSubstring(`"anew"`))
		Expect(lines[2]).To(ContainSubstring(`"turns":77`))
	})
})

type writes func(p []byte) (int, error)

func (w writes) Write(p []byte) (int, error) { return w(p) }

func logged(ctx SpecContext, st *thread.State, ops ...store.Op) {
	GinkgoHelper()
	Expect(st.Apply(ctx, ops...)).To(Succeed())
}
