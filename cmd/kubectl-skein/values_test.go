package main

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

var _ = Describe("kubectl skein", func() {
	var c command

	BeforeEach(func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, _, err = env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		c = command{ctx: context.Background(), ns: ns}
	})

	DescribeTable("kv stores, lists, prints and removes values", func(place string) {
		kv := func(verb string, args ...string) outputs {
			return c.run(append([]string{"kv", verb, place}, args...)...)
		}
		Expect(kv("set", "region", `"north"`)).To(Equal(outputs{out: "region set\n"}))
		c.stdin = `{"n":[1,2]}`
		Expect(kv("set", "in/parts", "-")).To(Equal(outputs{out: "in/parts set\n"}))
		Expect(kv("list").out).To(Equal("in/parts\nregion\n"))
		Expect(kv("list", "--prefix=reg").out).To(Equal("region\n"))
		Expect(kv("get", "in/parts").out).To(MatchJSON(`{"n":[1,2]}`))
		Expect(kv("delete", "region").out).To(Equal("region removed\n"))
		for _, verb := range []string{"get", "delete"} {
			got := kv(verb, "region")
			Expect(got.code).To(Equal(exitError))
			Expect(got.err).To(Equal("error: there is no value \"region\": `kubectl skein kv list` shows the keys\n"))
		}
		for _, key := range []string{"..", "/a//b/", "%2e%2e"} {
			Expect(kv("set", key, "1").out).To(Equal(key + " set\n"))
			Expect(kv("get", key).out).To(Equal("1\n"))
			Expect(kv("delete", key).out).To(Equal(key + " removed\n"))
		}
		Expect(kv("list").out).To(Equal("in/parts\n"))
		Expect(kv("set", "", "1").err).To(ContainSubstring("the key is empty"))
		Expect(kv("set", "region", "north").err).To(ContainSubstring(`put a text in double quotes, such as '"north"'`))
		Expect(kv("set", "region").err).To(ContainSubstring("VALUE is missing"))
	},
		Entry("of a thread", Label("KVS-01"), "hello"),
		Entry("of a store", Label("STA-07"), "--store=rates"))

	It("kv sets a time after which a store forgets a value, and refuses one for a thread", Label("STA-07"), func() {
		Expect(c.run("kv", "set", "--store=rates", "eur", "1.08", "--ttl=1h").code).To(BeZero())
		got := c.run("kv", "set", "hello", "eur", "1.08", "--ttl=1h")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(ContainSubstring("--ttl is for stores"))
	})

	It("state stores, prints and removes values", Label("STA-02"), func() {
		Expect(c.run("state", "set", "hello", "region", `"north"`)).To(Equal(outputs{out: "region set\n"}))
		Expect(c.run("state", "set", "hello", "n", "1").code).To(BeZero())
		Expect(c.run("state", "get", "hello").out).To(MatchJSON(`{"region":"north","n":1}`))
		Expect(c.run("state", "get", "hello", "region").out).To(Equal("\"north\"\n"))
		Expect(c.run("state", "delete", "hello", "region").out).To(Equal("region removed\n"))
		Expect(c.run("state", "get", "hello", "region").err).To(Equal("error: the state has no key \"region\": `kubectl skein state get hello` shows all of it\n"))
		got := c.run("state", "delete", "hello", "region")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(Equal("error: the state has no key \"region\": `kubectl skein state get hello` shows all of it\n"))
		for _, key := range []string{"..", "/a//b/", "%2e%2e"} {
			Expect(c.run("state", "set", "hello", key, "1").out).To(Equal(key + " set\n"))
			Expect(c.run("state", "get", "hello", key).out).To(Equal("1\n"))
			Expect(c.run("state", "delete", "hello", key).out).To(Equal(key + " removed\n"))
		}
		Expect(c.run("state", "delete", "hello").err).To(ContainSubstring("name a KEY, or set --all"))
		Expect(c.run("state", "delete", "hello", "--all").out).To(Equal("state cleared\n"))
		Expect(c.run("state", "get", "hello").out).To(MatchJSON(`{}`))
		Expect(c.run("state", "set", "hello", "region", "north").err).To(ContainSubstring("not JSON"))
	})

	It("makes threads, and manifests of threads", func(ctx SpecContext) {
		got := c.run("create", "orders", "--agent=analyst", "--message=hi", "--title=Orders")
		Expect(got).To(Equal(outputs{out: "thread/orders created\n"}))
		var t skeinv1.Thread
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: c.ns, Name: "orders"}, &t)).To(Succeed())
		Expect(t.Spec.AgentRef.Name).To(Equal("analyst"))
		Expect(t.Spec.Message).To(Equal("hi"))
		Expect(c.run("create", "--agent=analyst").out).To(MatchRegexp(`^thread/analyst-\w{5} created\n$`))
		got = c.run("create", "orders", "--agent=analyst")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(ContainSubstring("already exists"))
		Expect(c.run("create", "orders").err).To(ContainSubstring("--agent is missing"))

		got = c.run("create", "later", "--agent=analyst", "--dry-run")
		var made skeinv1.Thread
		Expect(yaml.UnmarshalStrict([]byte(got.out), &made)).To(Succeed())
		Expect(got.out).NotTo(Or(ContainSubstring("status"), ContainSubstring("creationTimestamp")))
		Expect(made.Name).To(Equal("later"))
		Expect(client.IgnoreNotFound(env.Client.Get(ctx, client.ObjectKey{Namespace: c.ns, Name: "later"}, &t))).To(Succeed())
		Expect(env.Client.Create(ctx, &made)).To(Succeed())
	})

	It("prints its version", func() {
		got := c.run("version", "--client")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(HavePrefix("Client: "))
		got = c.run("version")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(And(HavePrefix("Client: "), ContainSubstring(`"skein-manager" not found`)))
	})

	It("checks the cluster", Label("K8S-13"), func() {
		got := c.run("check", "--pre", "-o", "json")
		var list struct{ Findings []finding }
		Expect(json.Unmarshal([]byte(got.out), &list)).To(Succeed(), got.out)
		level := map[string]string{}
		for _, f := range list.Findings {
			level[f.Check] = f.Level
		}
		// The control plane of this suite has no node and no storage class.
		Expect(level).To(Equal(map[string]string{"Kubernetes": levelOK, "APIs": levelOK, "rights": levelOK, "nodes": levelError, "storage": levelWarning}))
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(Equal("error: 1 check failed\n"))
	})

	It("checks the installation, with a remedy for what is missing", Label("K8S-13"), func() {
		got := c.run("check")
		Expect(got.code).To(Equal(exitError))
		// The definitions and the runtime API are there; no manager is.
		Expect(got.out).To(And(
			MatchRegexp(`(?m)^ok    definitions: all \d+ kinds serve skein.dev/v1alpha1$`),
			MatchRegexp(`(?m)^FAIL  manager: there is no Deployment skein-manager in the namespace skein-system\n      Name its namespace`),
			MatchRegexp(`(?m)^FAIL  leader: `),
			MatchRegexp(`(?m)^ok    runtime API: runtime.skein.dev/v1alpha1 answers$`),
			MatchRegexp(`(?m)^FAIL  policies: `),
			MatchRegexp(`(?m)^ok    objects: `)))
		Expect(got.err).To(Equal("error: 3 checks failed\n"))
	})

	It("checks what a user without rights may read", Label("K8S-13"), func() {
		c.kubeconfig = GinkgoT().TempDir() + "/nobody"
		_, err := env.Kubeconfig("nobody", c.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		got := c.run("check")
		Expect(got.out).To(MatchRegexp(`(?m)^warn  definitions: you may not read this: `))
		Expect(c.run("check", "--pre").out).To(MatchRegexp(`(?m)^FAIL  rights: you may not create namespaces, customresourcedefinitions.apiextensions.k8s.io`))
	})
})
