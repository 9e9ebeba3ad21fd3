package main

import (
	"os"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

var _ = Describe("docs/kubectl-skein.md", func() {
	It("has a row for each command", func() {
		text, err := os.ReadFile("../../docs/kubectl-skein.md")
		Expect(err).NotTo(HaveOccurred())
		// What the first cells of the table say: `kubectl skein archive THREAD`, `unarchive THREAD`.
		var commands []string
		for _, row := range regexp.MustCompile("(?m)^\\| (`kubectl skein [^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
			for i, one := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
				words := strings.Fields(strings.TrimPrefix(one[1], "kubectl skein "))
				for _, group := range []string{"env", "effect", "kv", "state"} {
					if i > 0 && strings.HasPrefix(row[1], "`kubectl skein "+group+" ") {
						words = append([]string{group}, words...)
					}
				}
				commands = append(commands, " "+strings.Join(words, " ")+" ")
			}
		}
		var check func(c *cobra.Command, path string)
		check = func(c *cobra.Command, path string) {
			for _, sub := range c.Commands() {
				check(sub, path+sub.Name()+" ")
			}
			if c.Runnable() && !c.HasSubCommands() && !c.Hidden {
				Expect(commands).To(ContainElement(HavePrefix(path)), "a row for kubectl skein"+path)
			}
		}
		check(newRoot(genericiooptions.IOStreams{}), " ")
	})

	It("has its commands of effects on the page about effects, too", func() {
		text, err := os.ReadFile("../../docs/effects.md")
		Expect(err).NotTo(HaveOccurred())
		effect, _, err := newRoot(genericiooptions.IOStreams{}).Find([]string{"effect"})
		Expect(err).NotTo(HaveOccurred())
		for _, sub := range effect.Commands() {
			Expect(string(text)).To(MatchRegexp("`kubectl skein effect (?:suspend daily`, `)?"+sub.Name()+" "), sub.Name())
		}
	})

	It("says as the other pages in what cost is", func() {
		root := newRoot(genericiooptions.IOStreams{})
		usage, _, err := root.Find([]string{"usage"})
		Expect(err).NotTo(HaveOccurred())
		texts := map[string]string{"kubectl skein usage": usage.Long}
		for _, page := range []string{"usage.md", "models.md", "reference/api.md"} {
			text, err := os.ReadFile("../../docs/" + page)
			Expect(err).NotTo(HaveOccurred())
			texts[page] = string(text)
		}
		for name, text := range texts {
			Expect(text).To(MatchRegexp(`US\s+dollars`), name)
			Expect(text).NotTo(MatchRegexp(`currency\s+of\s+the`), name)
		}
	})
})
