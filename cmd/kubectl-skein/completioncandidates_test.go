package main

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// typedOnly are the arguments for which there is nothing to offer.
var typedOnly = map[string]string{
	"MESSAGE": "a text", "TEXT": "a text", "VALUE": "a value", "EVENT": "a name that its receivers know", "USER": "a name that no object has",
	"create NAME": "a new name",
}

var _ = Describe("completion", func() {
	It("knows each argument of each command", func() {
		root := newRoot(genericiooptions.IOStreams{})
		known := (&plugin{}).places()
		used := map[string]bool{}
		leaves(root, "", func(path string, c *cobra.Command) {
			words := argumentsOf(c)
			for _, word := range words {
				_, special := known[path+" "+word]
				_, general := known[word]
				_, typed := typedOnly[word]
				_, typedHere := typedOnly[path+" "+word]
				if special {
					used[path+" "+word] = true
				} else if general {
					used[word] = true
				}
				Expect(special || general || typed || typedHere || slices.Contains(localFiles, word)).To(BeTrue(), "nothing completes %s of kubectl skein %s", word, path)
			}
			if len(words) > 0 {
				Expect(c.ValidArgsFunction).NotTo(BeNil(), path)
			}
		})
		for word := range known {
			Expect(used).To(HaveKey(word), "no command has this argument")
		}
	})

	It("offers what a thread has", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, st, err := env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		c := command{ctx: ctx, ns: ns, stdin: "text"}
		Expect(c.run("kv", "set", "hello", "region", `"north"`).err).To(BeEmpty())
		Expect(c.run("kv", "set", "--store", "rates", "eur", "1").err).To(BeEmpty())
		Expect(c.run("state", "set", "hello", "count", "1").err).To(BeEmpty())
		Expect(c.run("files", "cp", "-", "hello:/a.txt").err).To(BeEmpty())
		Expect(st.ID()).NotTo(BeEmpty())
		for args, want := range map[string][]string{
			"kv get hello ":         {"region"},
			"kv get ":               {"hello"},
			"kv get --store rates ": {"eur"},
			"kv delete hello r":     {"region"},
			"state get hello ":      {"count"},
			"state delete hello x":  {},
			"files rm hello ":       {"/a.txt"},
			"files ls hello /a":     {"/a.txt"},
			"adopt ":                {},
			"webhook redeliver ":    {},
			"webhook deliveries ":   {},
			"search x --role ":      {"system", "user", "assistant", "tool"},
			"history -o ":           {"json", "yaml", "wide", "name"},
			"map hello -o ":         {"text", "mermaid", "dot"},
			"build --check a":       {"auto", "always"},
		} {
			got := c.run(append([]string{"__complete"}, strings.Split(args, " ")...)...)
			lines := strings.Split(strings.TrimSpace(got.out), "\n")
			Expect(lines[:len(lines)-1]).To(ConsistOf(want), args+got.err)
		}
	}, SpecTimeout(2*patience))
})
