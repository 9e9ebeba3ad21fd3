package main

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// everyCommand calls each for a command and all below it.
func everyCommand(cmd *cobra.Command, each func(*cobra.Command)) {
	each(cmd)
	for _, sub := range cmd.Commands() {
		everyCommand(sub, each)
	}
}

var _ = Describe("kubectl skein refuses", func() {
	c := command{ctx: context.Background(), ns: "none"}

	It("unknown words after every group of commands, and lists those that exist", func() {
		groups := 0
		everyCommand(newRoot(genericiooptions.NewTestIOStreamsDiscard()), func(cmd *cobra.Command) {
			if !cmd.HasSubCommands() || !cmd.HasParent() {
				return
			}
			groups++
			path := strings.Fields(cmd.CommandPath())[2:]
			got := c.run(append(path, "nosuch", "word")...)
			Expect(got.code).To(Equal(exitError), cmd.CommandPath())
			Expect(got.out).To(BeEmpty(), cmd.CommandPath())
			Expect(got.err).To(HavePrefix("error: %s has no command \"nosuch\": use one of ", cmd.CommandPath()))
			for _, sub := range cmd.Commands() {
				Expect(got.err).To(ContainSubstring(sub.Name()))
			}
			help := c.run(path...)
			Expect(help.code).To(BeZero(), "%s: %s", cmd.CommandPath(), help.err)
			Expect(help.out).To(ContainSubstring("Available Commands:"), cmd.CommandPath())
		})
		Expect(groups).To(BeNumerically(">=", 6))
		Expect(c.run("effect", "suspnd").err).To(ContainSubstring("did you mean kubectl skein effect suspend?"))
		Expect(c.run("files", "show").err).To(Equal("error: kubectl skein files has no command \"show\": use one of cp, ls, rm\n"))
	})

	It("numbers and durations below zero, in every flag of every command", func() {
		tried := 0
		everyCommand(newRoot(genericiooptions.NewTestIOStreamsDiscard()), func(cmd *cobra.Command) {
			cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				value := map[string]string{"int": "-1", "int32": "-1", "int64": "-1", "duration": "-5s"}[f.Value.Type()]
				if value == "" {
					return
				}
				tried++
				got := c.run(append(strings.Fields(cmd.CommandPath())[2:], "--"+f.Name+"="+value)...)
				Expect(got.code).To(Equal(exitError), "%s --%s", cmd.CommandPath(), f.Name)
				Expect(got.err).To(And(ContainSubstring("--%s", f.Name), ContainSubstring("it cannot be below 0: give a ")), "%s --%s", cmd.CommandPath(), f.Name)
			})
		})
		Expect(tried).To(BeNumerically(">", 15))
		Expect(c.run("send", "hello", "x", "--wait", "--timeout=soon").err).To(ContainSubstring("give a duration such as 30s, 5m or 1h30m"))
		Expect(c.run("history", "--limit=many").err).To(ContainSubstring("give a whole number such as 20"))
		Expect(c.run("history", "--request-timeout=-5s").err).To(ContainSubstring("--request-timeout=-5s: give a duration above 0 such as 30s"))
	})
})
