package conformance

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The end of code", Label("COD-04"), func() {
	const busy = "report('on'); for (;;);"

	It("comes from its handle in Go, and the first settle wins", func(ctx SpecContext) {
		_, state := coded(ctx)
		run := state.RunCode(ctx, busy, runtimeclient.CodeOptions{})
		for r := range run.Reports() {
			Expect(r).To(MatchJSON(`"on"`))
			Expect(run.Running()).To(BeTrue())
			run.Terminate("enough")
		}
		r, err := run.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(r).To(And(HaveField("Status", runtimev1.CodeTerminated), HaveField("Error.Message", "enough"), HaveField("Reports", HaveLen(1))))
		run.Terminate("again")
		Expect(run.Wait(ctx)).To(Equal(r))
		Expect(run.Running()).To(BeFalse())
	}, SpecTimeout(5*time.Minute))

	It("comes over the WebSocket, with its reason", func(ctx SpecContext) {
		t, _ := coded(ctx)
		conn := codeSocket(ctx, t)
		spoken(ctx, conn, `{"type":"run","run":{"source":"`+busy+`"}}`)
		Expect(heard(ctx, conn).Value).To(MatchJSON(`"on"`))
		spoken(ctx, conn, `{"type":"terminate","reason":"enough"}`)
		Expect(heard(ctx, conn).Result).To(HaveValue(And(HaveField("Status", runtimev1.CodeTerminated), HaveField("Error.Message", "enough"))))
	}, SpecTimeout(5*time.Minute))

	It("comes when its WebSocket closes", func(ctx SpecContext) {
		t, state := coded(ctx)
		// More of them than a sandbox takes at a time, one after the other: each must have left its place.
		for range 6 {
			conn := codeSocket(ctx, t)
			spoken(ctx, conn, `{"type":"run","run":{"source":"`+busy+`"}}`)
			Expect(heard(ctx, conn).Value).To(MatchJSON(`"on"`))
			_ = conn.CloseNow()
		}
		began := time.Now()
		Expect(state.RunCode(ctx, "export default () => 1", runtimeclient.CodeOptions{}).Wait(ctx)).To(HaveField("Status", runtimev1.CodeSuccess))
		Expect(time.Since(began)).To(BeNumerically("<", 50*time.Second), "the cap on wall time is a minute")
	}, SpecTimeout(5*time.Minute))

	It("is told by the handle in Go when the connection breaks", func(ctx SpecContext) {
		t, _ := coded(ctx)
		cfg := rest.CopyConfig(cluster.Config)
		var mu sync.Mutex
		var conns []net.Conn
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
			return c, err
		}
		c, err := runtimeclient.New(cfg)
		Expect(err).NotTo(HaveOccurred())
		run := c.Thread(t.Namespace, t.Name).RunCode(ctx, busy, runtimeclient.CodeOptions{})
		for range run.Reports() {
			mu.Lock()
			for _, c := range conns {
				_ = c.Close()
			}
			mu.Unlock()
		}
		Expect(run.Wait(ctx)).To(And(HaveField("Status", runtimev1.CodeTerminated), HaveField("Error.Message", ContainSubstring("the connection to the runtime API ended"))))
	}, SpecTimeout(5*time.Minute))

	It("comes with its thread, wherever it was started", func(ctx SpecContext) {
		t, state := coded(ctx)
		run := state.RunCode(ctx, busy, runtimeclient.CodeOptions{})
		for range run.Reports() {
			Expect(t.Terminate(ctx)).To(Succeed())
		}
		r, err := run.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeTerminated))
		Expect(r.Error.Message).To(ContainSubstring("terminated"), "it says why")
		_, err = state.RunCode(ctx, busy, runtimeclient.CodeOptions{}).Wait(ctx)
		Expect(errors.Is(err, runtimeclient.ErrTerminated)).To(BeTrue(), "%v", err)
	}, SpecTimeout(5*time.Minute))

	It("comes with the run whose tool started it", func(ctx SpecContext) {
		t := useTool(ctx, harness.CodeTool(namespace(ctx), "spin", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
  const r = await state.runCode("report(1); for (;;);", { report: () => state.setValue('spinning', true) });
  return { status: 'success', result: r.status };
} });`, nil), map[string]any{})
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func() (string, error) { return t.Value(ctx, "spinning") }).Should(MatchJSON("true"))
		began := time.Now()
		_, err := golang(t).Stop(ctx, "no more")
		Expect(err).NotTo(HaveOccurred())
		settled(ctx, t, 1)
		Expect(time.Since(began)).To(BeNumerically("<", 50*time.Second))
	}, SpecTimeout(5*time.Minute))
})
