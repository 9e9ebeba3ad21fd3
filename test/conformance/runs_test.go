package conformance

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Runs", func() {
	It("go through their stages in order", Label("RUN-01"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), []string{"builtin:files"}, []skeinv1.ScriptStep{
			harness.On("go", harness.Calls("list_files", map[string]any{})),
			harness.After("list_files", harness.Answer("none")),
		})
		say(ctx, t, 1, "go")
		events, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		var seen []string
		for _, e := range events {
			if e.Type != runtimev1.EventDelta {
				seen = append(seen, e.Type)
			}
		}
		Expect(seen).To(ContainElements(runtimev1.EventMessageQueued, runtimev1.EventRunStarted, runtimev1.EventMessageCreated, runtimev1.EventToolStarted, runtimev1.EventToolEnded, runtimev1.EventRunEnded))
		at := func(kind string) int {
			for i, s := range seen {
				if s == kind {
					return i
				}
			}
			return -1
		}
		Expect(at(runtimev1.EventMessageQueued)).To(BeNumerically("<", at(runtimev1.EventRunStarted)))
		Expect(at(runtimev1.EventRunStarted)).To(BeNumerically("<", at(runtimev1.EventToolStarted)))
		Expect(at(runtimev1.EventToolStarted)).To(BeNumerically("<", at(runtimev1.EventToolEnded)))
		Expect(seen[len(seen)-1]).To(Equal(runtimev1.EventRunEnded))
		for i := 1; i < len(events); i++ {
			Expect(events[i].Seq).To(Equal(events[i-1].Seq+1), "the log has no gaps")
		}
	}, SpecTimeout(2*time.Minute))

	// The manager is killed twenty times at random moments while messages keep coming. Each message must be
	// answered exactly once, each tool call have exactly one result, and nothing be lost or doubled.
	It("survive SIGKILL at random points without losing or doubling a message", Label("RUN-02"), Serial, func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.CodeTool(ns, "work", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (_state, args) => ({ status: 'success', result: 'worked on ' + args.item }) });
`, map[string]any{"item": map[string]any{"type": "string"}}, "item"))
		call := harness.Slow(20*time.Millisecond, harness.Calls("work", map[string]any{"item": "{{ .Last.Content }}"}))
		answer := harness.Slow(20*time.Millisecond, harness.Answer("finished: {{ .Last.Content }}"))
		t := converse(ctx, ns, []string{"work"}, []skeinv1.ScriptStep{harness.On("^m", call), harness.After("work", answer)})

		const kills = 20
		rng := rand.New(rand.NewPCG(seed(), 7))
		var sent []string
		for i := range kills {
			m := fmt.Sprintf("m%d", i)
			// The key makes a repeat after an answer that was lost with the manager harmless.
			Eventually(ctx, func() error {
				_, err := t.Queue(ctx, runtimev1.NewMessage{ID: m, Content: m, IdempotencyKey: m})
				return err
			}).Should(Succeed())
			sent = append(sent, m)
			<-time.After(time.Duration(rng.IntN(120)) * time.Millisecond) // the random point, not a wait for anything
			manager.Kill()
			Expect(manager.Start(ctx)).To(Succeed())
		}
		var ms []runtimev1.Message
		Eventually(ctx, func(g Gomega) {
			runs, err := t.Runs(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			for _, r := range runs {
				g.Expect(r.Ended()).To(BeTrue())
			}
			// Read after the runs have been seen to be over: what they wrote last is then among it.
			ms, err = t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ms).NotTo(BeEmpty())
			for _, m := range ms {
				g.Expect(m.Status).NotTo(Equal(runtimev1.MessagePending))
			}
			// A run that began in between may have got as far as its call.
			g.Expect(ms[len(ms)-1]).To(And(HaveField("Role", runtimev1.RoleAssistant), HaveField("ToolCalls", BeEmpty())))
		}).WithTimeout(time.Minute).Should(Succeed())

		var users []string
		results, calls := map[string]int{}, 0
		for _, m := range ms {
			switch m.Role {
			case runtimev1.RoleUser:
				users = append(users, *m.Content)
			case runtimev1.RoleAssistant:
				calls += len(m.ToolCalls)
				if m.Content != nil {
					Expect(*m.Content).NotTo(HavePrefix("(error"), strings.Join(texts(ms), "\n"))
				}
			case runtimev1.RoleTool:
				results[m.ToolCallID]++
				Expect(m.ToolStatus).To(Equal("success"), text(m))
			}
		}
		Expect(users).To(Equal(sent), "every message once, in order")
		Expect(results).To(HaveLen(calls), "every call has a result")
		Expect(results).To(HaveEach(1), "and no call has two")
		Expect(last(ms)).To(Equal("finished: worked on " + sent[len(sent)-1]))
	}, SpecTimeout(8*time.Minute))
})

// seed gives the suite's seed as the generator wants it, so that a failure can be played again.
func seed() uint64 { return uint64(GinkgoRandomSeed()) }
