package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// heldContents is a store that counts the reads of contents of files, and holds them up until release is closed.
type heldContents struct {
	store.Store
	release chan struct{}
	reads   atomic.Int64
	refused atomic.Bool // code has asked for the file /refused
}

// holdContents puts such a store into a world. letGo closes release.
func holdContents(w *enginetest.World) (h *heldContents, letGo func()) {
	h = &heldContents{Store: w.Store, release: make(chan struct{})}
	w.Store, w.Threads = h, w.Over(h)
	letGo = sync.OnceFunc(func() { close(h.release) })
	DeferCleanup(letGo)
	return h, letGo
}

func (h *heldContents) File(ctx context.Context, id, path string) (*store.File, error) {
	if path == "/refused" {
		h.refused.Store(true)
	}
	return h.Store.File(ctx, id, path)
}

func (h *heldContents) Contents(ctx context.Context, digest string) (string, error) {
	h.reads.Add(1)
	select {
	case <-h.release:
		return h.Store.Contents(ctx, digest)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// heldValue is a store that holds up the reads of key-values until it receives from release, and closes asked at the first one.
type heldValue struct {
	store.Store
	once    sync.Once
	asked   chan struct{}
	release chan struct{}
}

func (h *heldValue) Value(ctx context.Context, id, key string) ([]byte, error) {
	h.once.Do(func() { close(h.asked) })
	select {
	case <-h.release:
	case <-ctx.Done():
	}
	return h.Store.Value(ctx, id, key)
}

var _ = Describe("The memory of code", Label("K8S-12"), func() {
	var w *enginetest.World
	var budget *membudget.Budget
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		budget = membudget.New(64<<20, 50*time.Millisecond)
	})

	const calls, size = 40, 6 << 20
	// readMany returns the source of code that reads a file many times at once, and says what came of it. Once all are refused that
	// should be, it asks for the file /refused.
	readMany := func(params, read string, most int) string {
		return strings.NewReplacer("PARAMS", params, "READ", read, "CALLS", fmt.Sprint(calls), "REFUSED", fmt.Sprint(calls-most)).Replace(`export default async PARAMS => {
			let read = 0, refused = 0, why;
			await Promise.all(Array(CALLS).fill('/f').map(async (path) => {
				try {
					const { length, byteLength } = await READ(path);
					if ((byteLength ?? length) === 6291456) read++;
				} catch (e) {
					why = String(e);
					if (++refused === REFUSED) await READ('/refused');
				}
			}));
			return { read, refused, why };
		}`)
	}
	DescribeTable("is drawn for files before they are read, with the copies that are made of them", func(ctx SpecContext, copies int, byModel bool) {
		most := (32 << 20) / (copies * size)
		tool, step := readMany("(state)", "state.readFile", most), enginetest.Call("t", nil)
		if byModel {
			step = enginetest.Call("run_code", map[string]any{"source": readMany("()", "readFile", most)})
		}
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinCode), codeTool("t", tool), enginetest.Script(step, enginetest.Say("ok")))
		id := makeThread(ctx, w, "a")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.WriteFile(ctx, "/f", bytes.NewReader(bytes.Repeat([]byte("x"), size)), thread.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		held, letGo := holdContents(w)
		start(w, func(o *engine.Options) { o.Memory = budget })

		send(ctx, w, id, "go")
		Eventually(func() bool { return held.refused.Load() || held.reads.Load() == calls }).Should(BeTrue())
		Expect(held.reads.Load()).To(BeEquivalentTo(most), "no more files are read than there is room for")
		Expect(budget.Used()).To(BeNumerically(">=", most*copies*size))
		letGo()
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElement(And(
			ContainSubstring(fmt.Sprintf(`"read":%d`, most)), ContainSubstring(fmt.Sprintf(`"refused":%d`, calls-most)), ContainSubstring("RangeError: the program's values need more memory than there is"),
		)))
		Eventually(budget.Used).Should(BeZero())
	},
		Entry("that a tool reads", 2, false),
		Entry("that run_code reads as texts", 3, true),
	)

	It("is drawn for a key-value by what its JSON takes once it is decoded", func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", `export default async (state) => [(await state.getValue('small')).length, await state.getValue('large').catch(String)]`),
			enginetest.Script(enginetest.Call("t", nil), enginetest.Say("ok")))
		start(w, func(o *engine.Options) { o.Memory = budget })
		id := makeThread(ctx, w, "a")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		for key, n := range map[string]int{"small": 1000, "large": 100_000} {
			Expect(st.SetValue(ctx, key, []byte("["+strings.Repeat("{},", n-1)+"{}]"))).To(Succeed())
		}
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElement(And(ContainSubstring("[1000,"), ContainSubstring("RangeError: this takes 38 MiB of the manager's memory, more than the 32 MiB that a namespace can have"))))
	})

	const refused = `"kept":(29|30),.*RangeError: the program's values need more memory than there is`
	DescribeTable("is drawn for state as long as the manager keeps it", Label("STA-01", "STA-02", "STA-05"), func(ctx SpecContext, change, answer string) {
		w.Definitions.Put("a", codeTool("t", `export default async (state) => {
			const s = 'x'.repeat(1 << 20);
			let kept = 0, why;
			for (; kept < 40 && !why; kept++) await (async () => { `+change+` })().catch((e) => { why = String(e); kept-- });
			await state.getValue('gate');
			return { kept, why };
		}`), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("ok")))
		held := &heldValue{Store: w.Store, asked: make(chan struct{}), release: make(chan struct{})}
		DeferCleanup(sync.OnceFunc(func() { close(held.release) }))
		w.Store, w.Threads = held, w.Over(held)
		start(w, func(o *engine.Options) { o.Memory = budget })
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(held.asked).Should(BeClosed())
		Eventually(budget.Used).Should(BeNumerically(">", 28<<20), "what is kept is drawn; changes of the session come one after the other")
		held.release <- struct{}{}
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElement(MatchRegexp(answer)))
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunSucceeded), "state that is too large fails no run")
		Eventually(budget.Used).Should(BeZero())
	},
		Entry("by set", `await state.thread.state.set('k' + kept, s)`, refused),
		Entry("by push", `await state.thread.state.push('k', s)`, refused),
		Entry("after it was read", `await state.thread.state.get('k'); await state.thread.state.set('k' + kept, s)`, refused),
		Entry("of the session, which the code itself has in any case", `state.session.state.set('k' + kept, s)`, `"kept":40`),
	)

	It("is returned for state that is replaced, removed or saved", Label("STA-02", "STA-04"), func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", `export default async (state) => {
			const s = 'x'.repeat(1 << 20), { state: kept } = state.thread;
			for (let i = 0; i < 40; i++) await kept.set('k', s);
			for (let i = 0; i < 40; i++) { await kept.set('d', s); await kept.delete('d'); }
			for (let i = 0; i < 40; i++) { await kept.set('c' + i, s); await kept.clear(); }
			await kept.get('k');
			for (let i = 0; i < 40; i++) { await kept.set('k', [s]); await kept.push('k', s, 2); await kept.push('k', 'small', 1); }
			for (let i = 0; i < 40; i++) { state.session.state.set('k', s); await kept.set('k', 'small'); }
			state.session.state.clear();
			await kept.set('k', 'small');
			return 'done';
		}`), enginetest.Script(enginetest.Call("t", nil), enginetest.Call("t", nil), enginetest.Say("ok")))
		start(w, func(o *engine.Options) { o.Memory = budget })
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->t", "tool t success: done", "assistant ->t", "tool t success: done", "assistant: ok"}))
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		page, err := st.StateEntries(ctx, store.StateQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Entries).To(HaveLen(1))
		Eventually(budget.Used).Should(BeZero())
	})
})
