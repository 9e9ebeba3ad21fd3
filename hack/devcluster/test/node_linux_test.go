package test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// restricted is a pod that passes the restricted Pod Security Standard; args are its arguments, in YAML.
func restricted(ns, name, args string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, namespace: ` + ns + `, labels: {app: ` + name + `}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: app
    image: dct/app:1
    imagePullPolicy: Never
    args: ` + args + `
    ports: [{name: http, containerPort: 8080}]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
---
`
}

var _ = Describe("A cluster with a node", Ordered, func() {
	var c cluster
	var before host
	var pidNS string
	const ns = "t"

	in := func(pod string, args ...string) result {
		GinkgoHelper()
		return c.kubectl(append([]string{"-n", ns, "exec", pod, "--", "/app"}, args...)...)
	}
	ip := func(pod string) string {
		GinkgoHelper()
		return c.get("-n", ns, "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
	}
	// says and fails check the result of a program in a pod. They retry, because policies take effect a moment after
	// they are created, and a busy machine may delay one check.
	says := func(pod, words string, args ...string) {
		GinkgoHelper()
		Eventually(func() string { return in(pod, args...).out }, patience).Should(MatchRegexp(words))
	}
	fails := func(pod string, args ...string) {
		GinkgoHelper()
		Eventually(func() int { return in(pod, args...).code }, patience).ShouldNot(BeZero())
	}
	// reaches and refused check what a pod gets from a URL.
	reaches := func(pod, url string) {
		GinkgoHelper()
		says(pod, "hello from", "get", url)
	}
	refused := func(pod, url string) {
		GinkgoHelper()
		says(pod, "deadline exceeded|timeout|unreachable", "get", url)
	}

	BeforeAll(func() {
		needNode()
		c = newCluster("node")
		before = look(c)
		Expect(c.must("up", c.flags()...)).To(ContainSubstring("control plane and a node"))
		pidNS = nodePIDNamespace(c)
		c.must("load", "--dir="+c.dir, "--cluster="+c.name, "--name=dct/app:1", "--binary="+appBinary)
		c.get("create", "namespace", ns)
		c.get("label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted", "team=red")
		c.apply(restricted(ns, "web", `[serve, "8080", "9090"]`) + restricted(ns, "b", `[serve, "8080"]`) + restricted(ns, "c", `[serve, "8080"]`) + `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: t}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
`)
		c.get("-n", ns, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=240s")
	})

	It("has a status with a line for each part", func() {
		c.ready("supervisor", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "kubelet", "kube-proxy", "node")
	})

	It("changes no kernel setting of the machine and mounts nothing on it", func() {
		now := look(c)
		expectSettings(before, now)
		Expect(now.mounts).To(Equal(before.mounts))
		Expect(now.tables).To(Equal(before.tables))
	})

	It("runs restricted pods with logs and exec", func() {
		Eventually(func() string { return c.get("-n", ns, "logs", "web") }, patience).Should(ContainSubstring("serving as web uid 65532"))
		says("web", "hello from web", "get", "http://127.0.0.1:8080/")
	})

	It("resolves names and routes Services", func() {
		says("b", `100\.97\.0\.1`, "resolve", "kubernetes.default.svc.cluster.local")
		fails("b", "resolve", "no.such.name")
		reaches("b", "http://web/")
		reaches("web", "http://web.t.svc.cluster.local/") // a pod reaches itself through its Service
		reaches("b", "http://"+ip("web")+":9090/")
	})

	It("fails at once where a pod cannot get", func() {
		// The program gives up sooner than an unanswered address becomes unreachable, so the network reported it.
		says("b", "unreachable", "get", "http://192.0.2.99/")
	})

	It("lets aggregated APIs and this host reach pods", func() {
		Eventually(func() string { return c.kubectl("get", "--raw", "/api/v1/namespaces/t/pods/web:8080/proxy/").out }, patience).Should(ContainSubstring("hello from web"))
	})

	It("kills what uses too much memory", func() {
		c.apply(restricted(ns, "eater", `[eat, "200"]`))
		Eventually(func() string {
			return c.get("-n", ns, "get", "pod", "eater", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}")
		}, patience).Should(Equal("137"), "SIGKILL: the runtime may learn after the end that it was for memory, and then says Error")
		Expect(c.get("-n", ns, "logs", "eater")).NotTo(ContainSubstring("ate 200 MiB"))
	})

	It("loads image archives", func() {
		archive := filepath.Join(GinkgoT().TempDir(), "image.tar")
		c.must("image", "--out="+archive, "--name=dct/other:1", "--binary="+appBinary, "--entrypoint=/app resolve localhost")
		c.must("load", "--dir="+c.dir, "--cluster="+c.name, "--archive="+archive)
		c.apply(strings.ReplaceAll(strings.ReplaceAll(restricted(ns, "other", "[]"), "dct/app:1", "dct/other:1"), "Never\n    args", "IfNotPresent\n    args"))
		Eventually(func() string { return c.get("-n", ns, "get", "pod", "other", "-o", "jsonpath={.status.phase}") }, patience).Should(Equal("Succeeded"))
		r := call("load", "--dir="+c.dir, "--cluster="+c.name, "--archive="+filepath.Join(c.dir, "absent.tar"))
		Expect(r.code).NotTo(BeZero())
		Expect(r.out).To(ContainSubstring("absent.tar"))
	})

	Describe("NetworkPolicies", Ordered, func() {
		AfterEach(func() { c.get("-n", ns, "delete", "networkpolicy", "--all") })

		policy := func(spec string) {
			GinkgoHelper()
			c.apply("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: t}\nspec: " + spec)
		}

		It("deny everything by default, in both directions", func() {
			reaches("b", "http://web/")
			policy(`{podSelector: {}, policyTypes: [Ingress, Egress]}`)
			refused("b", "http://"+ip("web")+":8080/")
			fails("b", "resolve", "web")
			says("b", "deadline exceeded|i/o timeout", "get", "http://100.97.0.1:443/")
			Expect(c.get("-n", ns, "get", "pod", "web", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}")).To(Equal("True"))
			reaches("web", "http://127.0.0.1:8080/")
		})

		It("allow by pod selector and named port", func() {
			policy(`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress],
			  ingress: [{from: [{podSelector: {matchLabels: {app: b}}}], ports: [{port: http}]}]}`)
			refused("c", "http://"+ip("web")+":8080/")
			refused("b", "http://"+ip("web")+":9090/")
			reaches("b", "http://"+ip("web")+":8080/")
			reaches("b", "http://web/")
			refused("c", "http://web/")
		})

		It("allow by namespace selector, and DNS alone", func() {
			policy(`{podSelector: {matchLabels: {app: b}}, policyTypes: [Egress],
			  egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}],
			    ports: [{port: 53, protocol: UDP}, {port: 53}]}]}`)
			refused("b", "http://"+ip("web")+":8080/")
			says("b", `100\.97\.`, "resolve", "web.t.svc.cluster.local")
		})

		It("allow by address block with exceptions", func() {
			policy(`{podSelector: {matchLabels: {app: b}}, policyTypes: [Egress],
			  egress: [{to: [{ipBlock: {cidr: 100.96.0.0/16, except: [` + ip("c") + `/32]}}]}]}`)
			refused("b", "http://"+ip("c")+":8080/")
			reaches("b", "http://"+ip("web")+":8080/")
		})

		It("cut connections that they come to forbid", func() {
			c.apply(restricted(ns, "holder", `[hold, "`+ip("web")+`:7"]`))
			phase := func() string {
				return c.get("-n", ns, "get", "pod", "holder", "-o", "jsonpath={.status.phase}")
			}
			Eventually(func() string { return c.kubectl("-n", ns, "logs", "holder").out }, patience).Should(ContainSubstring("alive"))
			Eventually(phase, patience).Should(Equal("Running"))
			policy(`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)
			Eventually(phase, patience).Should(Equal("Failed"))
			Eventually(func() string { return c.get("-n", ns, "logs", "holder", "--tail=1") }, patience).Should(ContainSubstring("cut"))
		})

		It("hold from a new pod's first packet", func() {
			policy(`{podSelector: {matchLabels: {first: packet}}, policyTypes: [Egress]}`)
			// The pod tries as soon as it runs. If there is no unprotected moment, it never gets through.
			for _, name := range []string{"early-1", "early-2", "early-3"} {
				c.apply(strings.Replace(restricted(ns, name, `[get, "http://`+ip("web")+`:8080/"]`), "app: "+name, "first: packet", 1))
			}
			for _, name := range []string{"early-1", "early-2", "early-3"} {
				Eventually(func() string { return c.get("-n", ns, "get", "pod", name, "-o", "jsonpath={.status.phase}") }, patience).Should(Equal("Failed"))
				Eventually(func() string { return c.get("-n", ns, "logs", name) }, patience).Should(MatchRegexp("deadline exceeded|i/o timeout"))
			}
		})
	})

	It("keeps a new pod without policies connected from the start", func() {
		c.apply(restricted(ns, "quick", `[get, "http://`+ip("web")+`:8080/", "20s"]`))
		Eventually(func() string { return c.get("-n", ns, "get", "pod", "quick", "-o", "jsonpath={.status.phase}") }, patience).Should(Equal("Succeeded"))
	})

	It("runs beside clusters that start at the same moment", func() {
		others := []cluster{newCluster("second"), newCluster("third")}
		var wg sync.WaitGroup
		results := make([]result, len(others))
		for i, o := range others {
			wg.Go(func() {
				defer GinkgoRecover()
				results[i] = call("up", o.flags()...)
			})
		}
		wg.Wait()
		ranges := map[string]bool{}
		for i, o := range others {
			Expect(results[i].code).To(BeZero(), results[i].out)
			Expect(o.get("get", "nodes", "-o", "name")).To(Equal("node/" + o.name + "-node"))
			ranges[o.get("get", "nodes", "-o", "jsonpath={.items[0].spec.podCIDR}")] = true
		}
		Expect(ranges).To(HaveLen(len(others)))
		reaches("b", "http://web/")
	})

	It("goes down and leaves nothing", func() {
		Expect(processesOf(c, pidNS)).NotTo(BeEmpty())
		c.must("down", c.flags()...)
		expectSame(before, look(c))
		Eventually(func() []string { return processesOf(c, pidNS) }, patience).Should(BeEmpty())
		Expect(c.must("down", c.flags()...)).To(ContainSubstring("nothing is up"))
	})
})

// nodePIDNamespace returns the pid namespace of a cluster's node.
func nodePIDNamespace(c cluster) string {
	GinkgoHelper()
	ns, err := os.Readlink(filepath.Join("/proc", itoa(stateOf(c).NodeInitPID), "ns/pid"))
	Expect(err).NotTo(HaveOccurred())
	return ns
}
