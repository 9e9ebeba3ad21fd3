package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// widgets is a custom resource.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.test}
spec:
  group: example.test
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

var _ = Describe("A control plane without a node", Ordered, func() {
	var c cluster
	BeforeAll(func() {
		c = newCluster("cp")
		crds := GinkgoT().TempDir()
		r := call("up", append(c.flags(), "--node=false", "--crds="+crds)...)
		Expect(r.code).NotTo(BeZero())
		Expect(r.out).To(ContainSubstring("no .yaml file in " + crds))
		Expect(os.WriteFile(filepath.Join(crds, "widgets.yaml"), []byte(widgets), 0o600)).To(Succeed())
		out := c.must("up", append(c.flags(), "--node=false", "--audit-log", "--crds="+crds)...)
		Expect(out).To(ContainSubstring("control plane only, as asked for"))
	})

	It("can be used at once", func() {
		Expect(c.get("get", "serviceaccount", "default", "-o", "name")).To(Equal("serviceaccount/default"))
		Expect(c.get("version")).To(ContainSubstring("Server Version: v1."))
		Expect(c.get("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")).To(Equal("devcluster-admin"))
	})

	It("has the custom resources that it was given, and collects what they own", func() {
		c.apply("{apiVersion: example.test/v1, kind: Widget, metadata: {name: w, namespace: default}}")
		uid := c.get("get", "widget", "w", "-o", "jsonpath={.metadata.uid}")
		c.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: owned, namespace: default, ownerReferences: [{apiVersion: example.test/v1, kind: Widget, name: w, uid: " + uid + "}]}}")
		c.get("delete", "widget", "w")
		Eventually(func() string { return c.kubectl("get", "configmap", "owned").out }, patience).Should(ContainSubstring("not found"))
	})

	It("says so when it is up already, and refuses other settings", func() {
		Expect(c.must("up", append(c.flags(), "--node=auto")...)).To(ContainSubstring("is up already"))
		r := call("up", append(c.flags(), "--egress", "--node=false")...)
		Expect(r.code).NotTo(BeZero())
	})

	It("has a status with a line for each part", func() {
		c.ready("supervisor", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
		Expect(call("status", c.flags()...).out).To(ContainSubstring(filepath.Join(c.dir, "kubeconfig")))
	})

	It("gives the variables that tests need", func() {
		vars := map[string]string{}
		for line := range strings.Lines(c.must("env", c.flags()...)) {
			k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
			Expect(ok).To(BeTrue(), line)
			vars[k] = v
		}
		Expect(vars).To(HaveKeyWithValue("KUBECONFIG", filepath.Join(c.dir, "kubeconfig")))
		for _, p := range []string{"kube-apiserver", "etcd", "kubectl"} {
			Expect(filepath.Join(vars["KUBEBUILDER_ASSETS"], p)).To(BeAnExistingFile())
		}
	})

	It("enforces the Pod Security Standard of a namespace", func() {
		c.get("create", "namespace", "strict")
		c.get("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
		r := c.kubectl("-n", "strict", "run", "x", "--image=x")
		Expect(r.code).NotTo(BeZero())
		Expect(r.out).To(ContainSubstring(`violates PodSecurity "restricted`))
	})

	It("collects what is owned by a deleted object", func() {
		c.get("create", "deployment", "d", "--image=x", "--replicas=1")
		Eventually(func() string { return c.get("get", "pods", "-o", "name") }, patience).Should(ContainSubstring("pod/d-"))
		c.get("delete", "deployment", "d")
		Eventually(func() string { return c.get("get", "replicasets,pods", "-o", "name") }, patience).Should(BeEmpty())
	})

	It("writes an audit log that names callers and holds no bodies", func() {
		c.get("create", "configmap", "noted", "--from-literal=secret=not-to-be-logged")
		path := filepath.Join(c.dir, "logs", "audit.log")
		log := func() string {
			b, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			return string(b)
		}
		Eventually(log, patience).Should(ContainSubstring(`"name":"noted"`))
		Expect(log()).NotTo(ContainSubstring("not-to-be-logged"))
		var event struct{ UserAgent, Verb string }
		first, _, _ := strings.Cut(log(), "\n")
		Expect(json.Unmarshal([]byte(first), &event)).To(Succeed())
		Expect(event.UserAgent).NotTo(BeEmpty())
	})

	It("loads no image, and says why", func() {
		r := call("load", "--dir="+c.dir, "--cluster="+c.name, "--name=x", "--binary="+appBinary)
		Expect(r.code).NotTo(BeZero())
		Expect(r.out).To(ContainSubstring("has no node to load images into"))
	})

	It("goes down, twice, and is up no more", func() {
		c.must("down", c.flags()...)
		Expect(c.dir).NotTo(BeADirectory())
		Expect(c.must("down", c.flags()...)).To(ContainSubstring("nothing is up"))
		Expect(call("status", c.flags()...).code).To(Equal(1))
	})
})

var _ = Describe("A mistake on the command line", func() {
	DescribeTable("gets an error that says what to do", func(want string, args ...string) {
		r := call(args[0], args[1:]...)
		Expect(r.code).NotTo(BeZero())
		Expect(r.out).To(ContainSubstring(want))
	},
		Entry("an unknown command", "there is no command", "fly"),
		Entry("an unknown flag", "-colour", "status", "--colour"),
		Entry("an argument", "takes flags only", "status", "now"),
		Entry("a bad name", "lower-case letters", "up", "--name=My_Cluster"),
		Entry("a bad value for --node", "true, false or auto", "up", "--node=maybe", "--name=bad"),
		Entry("a bad range", "is not an IPv4 range", "up", "--node=false", "--name=bad", "--pod-cidr=fd00::/64"),
		Entry("up in a directory that is no cluster's", "is not a cluster's", "up", "--node=false", "--dir=/etc"),
		Entry("down of a directory that is no cluster's", "is not a cluster's", "down", "--dir=/etc"),
		Entry("an image without a name", "needs --name and --binary", "image", "--out=/dev/null"),
		Entry("an image with a bad name", "is not valid", "image", "--out=/tmp/x.tar", "--name=A B", "--binary=/bin/true"),
		Entry("an image for no cluster", "run up first", "load", "--cluster=absent", "--name=x", "--binary=/bin/true"),
	)
})
