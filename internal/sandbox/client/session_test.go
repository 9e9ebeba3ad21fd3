//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"fmt"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
)

var _ = Describe("changes of session state", Label("STA-01"), func() {
	var c *client.Client
	var ctx context.Context
	var h *host
	open := prepareIsolates(&ctx, &c, &h)

	scoped := func(r *sandbox.IsolateRequest) {
		r.Static = map[string]any{
			"$scopes":  map[string]any{"session": "sess_1", "thread": "t1", "entries": []any{[]any{"old", 0.0}}},
			"$methods": []any{"invokeTool", "getValue"},
		}
	}
	// changes returns the calls so far that change session state, in order, each as a method and its arguments.
	changes := func() (all []any) {
		for _, call := range h.seen() {
			if call.Method != "state.now" {
				all = append(all, append([]any{call.Method}, call.Args...))
			}
		}
		return all
	}

	It("reach the host one after the other, in order, and the last of a key alone", func() {
		first, gate := make(chan struct{}), make(chan struct{})
		h.answers["session.set"] = func(ctx context.Context, args []any) (any, error) {
			if args[0] == "first" {
				close(first)
				<-gate
			}
			return nil, nil
		}
		var called []any
		h.answers["getValue"] = func(context.Context, []any) (any, error) {
			<-first
			called = changes()
			close(gate)
			return nil, nil
		}
		i := open(map[string]string{"t": `export default async (state) => {
			const s = state.session.state;
			s.set('first', 1);
			s.set('lost', 1);
			s.delete('lost too');
			s.clear();
			s.set('b', [0]);
			s.set('a', 1);
			for (const n of [1, 2, 3]) s.push('b', n, 3);
			s.set('f', () => {});
			s.set('c', 1);
			s.delete('c');
			s.delete('a');
			s.set('a', 2);
			await state.getValue('k'); // opens the gate
			return s.entries().filter(([k]) => k !== 'f');
		}`}, scoped)
		v, err := i.Invoke(ctx, "1", "t", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(v).To(Equal([]any{[]any{"b", []any{1.0, 2.0, 3.0}}, []any{"a", 2.0}}), "the code sees its changes at once")
		Expect(called).To(ConsistOf([]any{"session.set", "first", 1.0}, []any{"getValue", "k"}), "no other change while one is under way")
		Expect(changes()[2:]).To(Equal([]any{
			[]any{"session.clear"}, []any{"session.set", "b", []any{1.0, 2.0, 3.0}}, []any{"state.skip", "session", "f", "a function"},
			[]any{"session.delete", "c"}, []any{"session.delete", "a"}, []any{"session.set", "a", 2.0},
		}))
	})

	It("may be more than a thousand in a row", func() {
		i := open(map[string]string{"t": `export default (state) => { for (let i = 0; i <= 1000; i++) state.session.state.set('k' + i, i); return null }`}, scoped)
		Expect(i.Invoke(ctx, "1", "t", nil)).To(BeNil())
		var want []any
		for n := range 1001 {
			want = append(want, []any{"session.set", fmt.Sprint("k", n), float64(n)})
		}
		Expect(changes()).To(Equal(want))
	})

	It("are at the host before a call at which it may save the run", func() {
		var before atomic.Int64
		h.answers["invokeTool"] = func(_ context.Context, args []any) (any, error) {
			before.Store(int64(len(changes())))
			return args, nil
		}
		i := open(map[string]string{"t": `export default async (state) => {
			for (const k of ['a', 'b', 'c']) state.session.state.set(k, 1);
			const args = { n: 1 };
			const called = state.invokeTool('other', args);
			args.n = 2;
			return await called;
		}`}, scoped)
		Expect(i.Invoke(ctx, "1", "t", nil)).To(Equal([]any{"other", map[string]any{"n": 1.0}}))
		Expect(before.Load()).To(BeEquivalentTo(4), "three changes and the call itself")
	})

	It("that fail are reported, and the others arrive", func() {
		h.answers["session.set"] = func(_ context.Context, args []any) (any, error) {
			if args[0] == "a" {
				return nil, &sandbox.Error{Name: "RangeError", Message: "not today"}
			}
			return nil, nil
		}
		var lines []string
		i := open(map[string]string{"t": `export default (state) => { for (const k of ['a', 'b']) state.session.state.set(k, 1); return null }`}, scoped, func(r *sandbox.IsolateRequest) {
			r.Log = func(_ string, l sandbox.Log) { lines = append(lines, l.Message) }
		})
		Expect(i.Invoke(ctx, "1", "t", nil)).To(BeNil())
		Expect(lines).To(Equal([]string{"state was not kept: not today"}))
		Expect(changes()).To(Equal([]any{[]any{"session.set", "a", 1.0}, []any{"session.set", "b", 1.0}}))
	})

	It("belong to the handler that is under way", Label("AGT-09"), func() {
		i := open(map[string]string{"t": `import { createAgent } from '@agentuity/runtime';
			export default createAgent('One', { handler: (ctx, input) => { ctx.session.state.set(String(input), 1); return '' } })`}, scoped, func(r *sandbox.IsolateRequest) {
			r.Static["$handler"] = "handler:"
		})
		for _, n := range []string{"1", "2"} {
			_, err := i.Invoke(ctx, "handler:"+n, "t", map[string]any{"text": n})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(changes()).To(Equal([]any{[]any{"session.set", "1", 1.0}, []any{"session.set", "2", 1.0}}))
	})

	DescribeTable("are awaited by the call that makes them, also while an earlier handler has work under way", Label("AGT-09"), func(invocation, module string) {
		working, gate, handled := make(chan struct{}), make(chan struct{}), make(chan struct{})
		h.answers["kv.get"] = func(context.Context, []any) (any, error) {
			close(working)
			<-handled
			return nil, nil
		}
		h.answers["session.set"] = func(context.Context, []any) (any, error) {
			<-gate
			return nil, nil
		}
		i := open(map[string]string{"t": `import { createAgent } from '@agentuity/runtime';
			export default createAgent('One', { handler: (ctx, input) => {
				if (input === 'first') ctx.waitUntil(() => ctx.kv.get('store', 'key'));
				else ctx.session.state.set('a', 1);
				return '';
			} })`, "tool": "export default (state) => { state.session.state.set('a', 1); return '' }"}, scoped, func(r *sandbox.IsolateRequest) {
			r.Static["$handler"] = "handler:"
		})
		invoke := func(invocation, module, text string) chan struct{} {
			ended := make(chan struct{})
			go func() {
				defer GinkgoRecover()
				defer close(ended)
				_, err := i.Invoke(ctx, invocation, module, map[string]any{"text": text})
				Expect(err).NotTo(HaveOccurred())
			}()
			return ended
		}
		first := invoke("handler:1", "t", "first")
		Eventually(working).Should(BeClosed())
		second := invoke(invocation, module, "second")
		Eventually(changes).Should(ContainElement([]any{"session.set", "a", 1.0}))
		Consistently(second, "200ms").ShouldNot(BeClosed())
		close(gate)
		Eventually(second).Should(BeClosed())
		close(handled)
		Eventually(first).Should(BeClosed())
	},
		Entry("another handler", "handler:2", "t"),
		Entry("a tool", "2", "tool"),
	)
})
