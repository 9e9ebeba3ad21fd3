package main

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/browser"
)

var _ = Describe("kubectl skein console in a browser", Label("CON-04"), func() {
	It("lists 10,000 threads, of which only those in sight are in the page", func(ctx SpecContext) {
		const many = 10_000
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		cfg, err := env.Kubeconfig("many", GinkgoT().TempDir()+"/many", "system:masters")
		Expect(err).NotTo(HaveOccurred())
		cfg.QPS = -1
		c, err := threadObjects(cfg)
		Expect(err).NotTo(HaveOccurred())
		thread := func(name string) *skeinv1.Thread {
			return &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "agent"}}}
		}
		creating, creatingCtx := errgroup.WithContext(ctx)
		creating.SetLimit(50)
		for i := range many {
			creating.Go(func() error { return c.Create(creatingCtx, thread(fmt.Sprintf("thread-%05d", i))) })
		}
		Expect(creating.Wait()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(c.DeleteAllOf(ctx, &skeinv1.Thread{}, client.InNamespace(ns))).To(Succeed())
		}, NodeTimeout(patience))

		running, interrupt := context.WithCancel(ctx)
		DeferCleanup(interrupt)
		out := &lockedBuffer{}
		ended := make(chan int, 1)
		go func() {
			ended <- run(running, genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: GinkgoWriter}, []string{"--kubeconfig", kubeconfig, "-n", ns, "console"})
		}()
		Eventually(ctx, out.String).Should(ContainSubstring("/login?token="))
		p := browser.Open(ctx, strings.TrimSpace(out.String()))
		p.Test("total").See(ctx, "10,000 threads")
		p.By("button", "Pending 10,000").Wait(ctx)
		rows := p.Test("thread-row")
		drawn := rows.Count(ctx)
		Expect(drawn).To(And(BeNumerically(">", 5), BeNumerically("<", 100)))
		Expect(p.By("table", "Threads").Attribute(ctx, "aria-rowcount")).To(Equal("10001"))

		By("going to the end and back by keyboard")
		p.CSS(`[aria-rowindex="2"] a`).Focus(ctx)
		p.Press(ctx, "End")
		p.CSS(`[aria-rowindex="10001"] a:focus`).Wait(ctx)
		Expect(rows.Count(ctx)).To(BeNumerically("<", 100))
		p.Press(ctx, "PageUp", "Home")
		p.CSS(`[aria-rowindex="2"] a:focus`).Wait(ctx)

		By("finding one, and one that comes meanwhile")
		p.By("searchbox", "Find threads by name, title, agent or user").Fill(ctx, "thread-07777")
		p.Test("total").See(ctx, "1 thread")
		Expect(rows.Count(ctx)).To(Equal(1))
		p.By("searchbox", "Find threads by name, title, agent or user").Fill(ctx, "late")
		p.Test("total").See(ctx, "0 threads")
		Expect(c.Create(ctx, thread("late"))).To(Succeed())
		p.By("link", "late").Wait(ctx)
		Expect(c.Delete(ctx, thread("late"))).To(Succeed())
		p.By("link", "late").Gone(ctx)
		interrupt()
		Eventually(ctx, ended).Should(Receive(Equal(exitInterrupted)))
	}, SpecTimeout(5*patience))
})
