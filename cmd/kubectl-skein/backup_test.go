package main

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl skein backup", Label("K8S-09"), func() {
	It("replaces no file that exists, unless it is told to", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		c := command{ctx: ctx, ns: ns}
		file := filepath.Join(GinkgoT().TempDir(), "a.tar.gz")
		Expect(os.WriteFile(file, []byte("of last year"), 0o600)).To(Succeed())
		got := c.run("backup", "-o", file)
		Expect([]any{got.code, got.err}).To(Equal([]any{exitError, "error: " + file + " exists: name another file, or replace this one with --force\n"}))
		Expect(os.ReadFile(file)).To(BeEquivalentTo("of last year"))
		Expect(c.run("backup", "-o", file, "--force").err).NotTo(ContainSubstring("exists"))
	})
})
