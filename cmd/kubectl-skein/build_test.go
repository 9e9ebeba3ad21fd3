package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const someTool = "import { defineTool } from '@standardagents/builder';\nexport default defineTool({ description: 'x', execute: async () => 1 });\n"

// folder writes files into a new folder.
func folder(files map[string]string) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	for name, text := range files {
		Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)).To(Succeed())
	}
	return dir
}

// plain runs a command without a cluster.
func plain(args ...string) outputs {
	var out, errOut bytes.Buffer
	code := run(context.Background(), genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, args)
	return outputs{code: code, out: out.String(), err: errOut.String()}
}

var _ = Describe("kubectl skein build", Label("K8S-03"), func() {
	It("prints objects that admission takes", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		dir := folder(map[string]string{
			"tools/a.ts":         someTool,
			"tools/long.ts":      "import { defineTool } from '@standardagents/builder';\nconst t = '" + strings.Repeat("x", 300_000) + "';\nexport default defineTool({ description: 'x', execute: async () => t });\n",
			"effects/e.ts":       "import { defineEffect } from '@standardagents/builder';\nexport default defineEffect({ handler: async () => {} });\n",
			"endpoints/x/[y].ts": "import { defineThreadEndpoint } from '@standardagents/builder';\nexport default defineThreadEndpoint({ PUT: async () => new Response('') });\n",
			"agents/r.ts":        "import { createAgent } from '@agentuity/runtime';\nexport default createAgent('R', { handler: async () => 'x' });\n",
			"hooks/h.ts":         "import { defineHook } from '@standardagents/builder';\nexport default defineHook('after_thread_created', async () => {});\n",
			"objects/o.yaml":     "apiVersion: skein.dev/v1alpha1\nkind: Agent\nmetadata: {name: hooked}\nspec: {sideA: {promptRef: {name: p}}, hooks: [{code: {file: ../hooks/h.ts}}]}\n",
		})
		got := plain("build", dir, "--check=never")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.err).To(ContainSubstring("apply it with --server-side"))
		docs := strings.Split(got.out, "\n---\n")
		Expect(docs).To(HaveLen(7))
		for _, doc := range docs {
			o := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(doc), &o.Object)).To(Succeed())
			o.SetNamespace(ns)
			Expect(env.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("spec"))).To(Succeed(), o.GetName())
		}
	})

	It("writes a folder, and says what it did", func() {
		dir := folder(map[string]string{"tools/a.ts": someTool})
		out := filepath.Join(dir, "manifests")
		Expect(plain("build", dir, "-o", out, "--check=never")).To(Equal(outputs{out: filepath.Join(out, "tool-a.yaml") + " written\n"}))
		Expect(plain("build", dir, "-o", out, "--check=never")).To(Equal(outputs{out: out + " is up to date\n"}))
		Expect(os.Rename(filepath.Join(dir, "tools/a.ts"), filepath.Join(dir, "tools/b.ts"))).To(Succeed())
		Expect(plain("build", dir, "-o", out, "--check=never").out).To(And(ContainSubstring("tool-b.yaml written"), ContainSubstring("tool-a.yaml removed")))
	})

	It("says what is wrong", func() {
		dir := folder(map[string]string{"tools/a.ts": "import x from 'node:fs';\nexport default x;"})
		Expect(plain("build").err).To(ContainSubstring("DIR is missing"))
		Expect(plain("build", "nowhere").err).To(ContainSubstring("nowhere"))
		Expect(plain("build", dir, "--check=perhaps").err).To(ContainSubstring("it must be auto, always or never"))
		Expect(plain("build", dir, "--watch").err).To(ContainSubstring("--watch needs -o FOLDER"))
		got := plain("build", dir)
		Expect(got.code).To(Equal(1))
		Expect(got.err).To(HavePrefix("error: tools/a.ts:1:15: node:fs is not available in sandboxes"))
	})

	It("keeps watching after a mistake in a source", func(ctx SpecContext) {
		dir := folder(map[string]string{"tools/a.ts": someTool})
		out := filepath.Join(dir, "manifests")
		watching, stop := context.WithCancel(ctx)
		var said lockedBuffer
		code := make(chan int, 1)
		go func() {
			code <- run(watching, genericiooptions.IOStreams{Out: &said, ErrOut: &said}, []string{"build", dir, "-o", out, "--check=never", "-w"})
		}()
		Eventually(said.String).Should(ContainSubstring("waiting for changes"))
		Expect(os.WriteFile(filepath.Join(dir, "tools/a.ts"), []byte("const = 1"), 0o644)).To(Succeed())
		Eventually(said.String).Should(ContainSubstring("error: tools/a.ts:1:7"))
		Expect(os.WriteFile(filepath.Join(dir, "tools/a.ts"), []byte(strings.Replace(someTool, "=> 1", "=> 2", 1)), 0o644)).To(Succeed())
		Eventually(func() (string, error) {
			text, err := os.ReadFile(filepath.Join(out, "tool-a.yaml"))
			return string(text), err
		}).Should(ContainSubstring("=> 2"))
		stop()
		Eventually(code).Should(Receive(Equal(130)))
	}, SpecTimeout(patience))
})
