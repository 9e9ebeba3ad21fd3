package main

import (
	"bytes"
	"context"
	"errors"
	"io"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// full is an output that takes nothing, such as a full disk.
type full struct{}

// Write implements io.Writer.
func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

var _ = Describe("A command whose output cannot be written", func() {
	DescribeTable("fails and says so, and does not wait for more", func(ctx SpecContext, args ...string) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, _, err = env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		Expect(command{ctx: context.Background(), ns: ns}.run("send", "hello", "good morning", "--wait").code).To(BeZero())
		type end struct {
			code int
			text string
		}
		ended := make(chan end, 1)
		go func() {
			defer GinkgoRecover()
			var errOut bytes.Buffer
			code := run(ctx, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: io.Writer(full{}), ErrOut: &errOut}, append([]string{"--kubeconfig", kubeconfig, "-n", ns}, args...))
			ended <- end{code, errOut.String()}
		}()
		Eventually(ctx, ended).Should(Receive(Equal(end{exitError, "error: write the output: no space left on device\n"})))
	},
		Entry("a conversation", "messages", "hello"),
		Entry("a tree", "tree", "hello"),
		Entry("a map", "map", "hello"),
		Entry("what comes", "watch", "hello", "--all"),
		Entry("help", "--help"),
		Entry("a label", "env", "user-label", "ada"),
	)
})
