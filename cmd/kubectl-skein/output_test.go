package main

import (
	"encoding/json"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// otherOutput has the commands without -o json|yaml|wide|name, and why.
var otherOutput = map[string]string{
	// They print a result that is no object and has no name: json and yaml only.
	"check": "findings", "version": "versions", "code": "a result", "tool": "a result", "compact": "one message that it has made", "fork": "a record of what it has made",
	"handoff": "a record of what it has made", "rerun": "a record of what it has made",
	// -o is where they write to.
	"build": "-o is the folder", "backup": "-o is the file", "export": "-o is the file",
	// They print something that has a form already.
	"map": "a drawing", "console": "an address",
	"types": "TypeScript", "endpoint": "what the endpoint answers", "effect logs": "text", "effect next": "times", "env user-label": "labels for a manifest", "status": "a text",
	// They follow or talk.
	"chat": "a conversation", "dev": "a conversation",
	"send": "a message, its run and the answers: no columns",
	// They change something and say what became of it.
	"restore": "a report", "files cp": "a copy", "env rotate": "what to do next", "effect run": "what became of a request", "effect backfill": "what became of a request",
}

// leaves calls f for each command that does something.
func leaves(c *cobra.Command, path string, f func(path string, c *cobra.Command)) {
	for _, sub := range c.Commands() {
		leaves(sub, strings.TrimSpace(path+" "+sub.Name()), f)
	}
	if c.Runnable() && !c.HasSubCommands() && !c.Hidden && c.Name() != "help" && !strings.HasPrefix(path, "completion") {
		f(path, c)
	}
}

var _ = Describe("--output", func() {
	It("is there for each command that lists or shows objects", func() {
		left := map[string]bool{}
		for path := range otherOutput {
			left[path] = true
		}
		leaves(newRoot(genericiooptions.IOStreams{}), "", func(path string, c *cobra.Command) {
			_, exempt := otherOutput[path]
			delete(left, path)
			f := c.Flag("output")
			if slices.Contains(changing, path) {
				Expect(f).To(And(Not(BeNil()), HaveField("Usage", nameUsage), HaveField("Shorthand", "o")), path)
				return
			}
			if exempt {
				Expect(f == nil || f.Usage != "Output format: json, yaml, wide or name.").To(BeTrue(), "%s has all formats: take it out of the list", path)
				return
			}
			Expect(f).NotTo(BeNil(), "kubectl skein %s needs -o, or a reason in otherOutput", path)
			Expect(formatsOf(f.Usage)).To(Equal(outputFormats), path)
			Expect(f.Shorthand).To(Equal("o"), path)
		})
		Expect(left).To(BeEmpty(), "there are no such commands")
	})

	It("prints lists in each format", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		obj, st, err := env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		tree(ctx, ns, obj)
		quota := &skeinv1.ThreadQuota{}
		quota.Namespace, quota.Name, quota.Spec.Hard.Threads = ns, "q", ptr.To[int64](5)
		Expect(env.Client.Create(ctx, quota)).To(Succeed())
		c := command{ctx: ctx, ns: ns}
		Expect(c.run("send", "hello", "good morning", "--wait", "--timeout=2m").err).To(BeEmpty())
		Expect(c.run("kv", "set", "hello", "region", `"north"`, "-o", "name")).To(Equal(outputs{out: "key/region\n"}))
		c.stdin = "text"
		Expect(c.run("files", "cp", "-", "hello:/a.txt").err).To(BeEmpty())

		for _, one := range []struct {
			args, names string
			wide        string // a column that only wide has
			list        string // the field of the items
		}{
			{"messages hello", `^(message/\S+\n){4}$`, "", "messages"},
			{"runs hello", `^run/sess_\w+\n$`, "STARTED", "runs"},
			{"approvals hello", `^$`, "", "approvals"},
			{"files ls hello", `^/a.txt\n$`, "STORAGE", "files"},
			{"kv list hello", `^region\n$`, "", "keys"},
			{"list", `^thread.skein.dev/`, "PARENT", "items"},
			{"show hello", `^thread.skein.dev/hello\n$`, "", "spec"},
			{"history", `(?m)^thread.skein.dev/hello$`, "TASK", "items"},
			{"effect list", `^scheduledeffect.skein.dev/remind\n$`, "EFFECT", "items"},
			{"tree", `(?m)^Thread/hello\nSubagent/audit\nThread/audit$`, "", "items"},
			{"quota", `^threadquota.skein.dev/q\n$`, "", "items"},
			{"usage", `^namespace/` + ns + `\n$`, "", ""},
			{"usage hello --records", `^(run/.*\n)*$`, "", "records"},
			{"retained", `^$`, "", "threads"},
			{"skill hello", `^$`, "", "activatedSkills"},
			{"search morning", `^(message/\S+\n)+$`, "", "hits"},
			{"webhook deliveries", `^$`, "", "deliveries"},
		} {
			args := strings.Fields(one.args)
			got := c.run(append(args, "-o", "name")...)
			Expect(got.code).To(BeZero(), one.args+got.err)
			Expect(got.out).To(MatchRegexp(one.names), one.args)
			var fromJSON, fromYAML map[string]any
			got = c.run(append(args, "-o", "json")...)
			Expect(json.Unmarshal([]byte(got.out), &fromJSON)).To(Succeed(), one.args+got.err)
			got = c.run(append(args, "-o", "yaml")...)
			Expect(yaml.Unmarshal([]byte(got.out), &fromYAML)).To(Succeed(), one.args+got.err)
			if one.list != "" {
				Expect(fromJSON).To(HaveKey(one.list), one.args)
				Expect(fromYAML).To(HaveKey(one.list), one.args)
			}
			wide, usual := c.run(append(args, "-o", "wide")...), c.run(args...)
			Expect(wide.code).To(BeZero(), one.args+wide.err)
			if one.wide != "" {
				Expect(wide.out).To(ContainSubstring(one.wide), one.args)
				Expect(usual.out).NotTo(ContainSubstring(one.wide), one.args)
			}
			Expect(c.run(append(args, "-o", "nonsense")...).err).To(ContainSubstring("--output=nonsense: give json, yaml, wide or name"), one.args)
		}
		By("values of any type")
		Expect(c.run("state", "set", "hello", "total", `{"deep":[1]}`).err).To(BeEmpty())
		for _, one := range []struct{ args, text, yaml, names string }{
			{"kv get hello region", `"north"` + "\n", "north\n", "region\n"},
			{"state get hello total", "{\n  \"deep\": [\n    1\n  ]\n}\n", "deep:\n- 1\n", "total\n"},
			{"state get hello", "{\n  \"total\": {\n    \"deep\": [\n      1\n    ]\n  }\n}\n", "total:\n  deep:\n  - 1\n", "total\n"},
		} {
			args := strings.Fields(one.args)
			for output, want := range map[string]string{"": one.text, "json": one.text, "wide": one.text, "yaml": one.yaml, "name": one.names} {
				Expect(c.run(append(args, "-o", output)...).out).To(Equal(want), "%s -o %s", one.args, output)
			}
			Expect(c.run(append(args, "-o", "nonsense")...).err).To(ContainSubstring("--output=nonsense: give json, yaml, wide or name"), one.args)
		}

		By("streams")
		for _, text := range []string{"first", "second"} {
			Expect(env.Threads.Store().Apply(ctx, st.ID(), nil, &store.AppendEvent{Event: store.Event{Type: store.EventCodeLog, Data: []byte(`{"level":"info","message":"` + text + `"}`)}})).To(Succeed())
		}
		for _, one := range []struct{ args, json, yaml, wide, names string }{
			{"observe hello --once", `^\{.*"value":.*\}\n$`, `(?s)^---\n.*\nvalue:\n`, `^\{.*"value":.*\}\n$`, `^thread.skein.dev/hello\n$`},
			{"logs hello", `^(\{"seq":.*\}\n){2}$`, `(?s)^---\n.*type: code.log.*\n---\n`, `^(\d+ - \S+ .*\n){2}$`, `^(event/\d+\n){2}$`},
		} {
			args := strings.Fields(one.args)
			for output, want := range map[string]string{"json": one.json, "wide": one.wide, "yaml": one.yaml, "name": one.names} {
				got := c.run(append(args, "-o", output)...)
				Expect(got.code).To(BeZero(), got.err)
				Expect(got.out).To(MatchRegexp(want), "%s -o %s", one.args, output)
			}
			Expect(c.run(append(args, "-o", "nonsense")...).err).To(ContainSubstring("--output=nonsense: give json, yaml, wide or name"), one.args)
		}
		Expect(c.run("tree", "--watch", "-o", "json").err).To(ContainSubstring("leave out --output"))
	}, SpecTimeout(2*patience))
})
