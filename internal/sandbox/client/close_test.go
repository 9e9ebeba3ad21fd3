package client_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("Close", Label("COD-04"), func() {
	var (
		c    *client.Client
		iso  sandbox.Isolate
		host chan string // current calls of the host
	)
	const modules = `
		export default { execute: async (state, args) => {
			if (args === 'spin') { await state.spin(); for (;;); }
			if (args === 'ask') return await state.wait();
			if (args === 'run') return await state.runCode('await ask()', { globals: { ask: () => state.wait() } });
			if (args === 'report') return await state.runCode('for (;;) report(1)', { report: async () => { await state.spin(); for (;;); } });
			return 1;
		} }`

	BeforeEach(func() {
		c = sandboxtest.Start(GinkgoT(), nil).Dial(GinkgoT(), "thread")
		host = make(chan string, 100)
		var err error
		iso, err = c.OpenIsolate(context.Background(), sandbox.IsolateRequest{
			Modules: map[string]sandbox.Module{"m.js": {Code: modules, Filename: "m.js"}},
			Host: func(ctx context.Context, _, method string, args []any) (any, error) {
				switch method {
				case "runCode":
					return client.ServeRunCode(ctx, c, iso, args)
				case "spin":
					host <- method
					return nil, nil
				}
				host <- method
				select {} // a function of the host that ignores its context
			},
		})
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("ends what is under way, and comes back", func(ctx SpecContext, args string) {
		ended := make(chan error, 1)
		go func() {
			defer GinkgoRecover()
			_, err := iso.Invoke(context.Background(), "call", "m.js", args)
			ended <- err
		}()
		if args == "" {
			Eventually(ended, patience).Should(Receive(BeNil()))
			ended <- &sandbox.IsolateGoneError{}
		} else {
			Eventually(host, patience).Should(Receive())
		}
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		Eventually(closed, patience).Should(Receive(BeNil()))
		Eventually(ended, patience).Should(Receive(BeAssignableToTypeOf(&sandbox.IsolateGoneError{})))
		_, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{})
		Expect(err).To(MatchError(ContainSubstring("closed")))
		r := c.RunCode(ctx, sandbox.CodeRequest{Source: "export default 1"}).Wait(ctx)
		Expect(r.Error).To(MatchError(ContainSubstring("closed")))
		Expect(r.Retriable).To(BeTrue(), "nothing of it has run")
	},
		Entry("an isolate at rest", ""),
		Entry("an isolate that computes", "spin"),
		Entry("an isolate that awaits a deaf host", "ask"),
		Entry("a run of an isolate that awaits a function of it", "run"),
		Entry("a run whose report the isolate does not take", "report"),
	)
})
