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
})
