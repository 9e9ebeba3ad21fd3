package definitions_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/kubetest"
)

var _ = Describe("Tools that reach others", Label("TOL-02"), func() {
	secret := func(data map[string]string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: kubetest.Meta("s"), Data: map[string][]byte{}}
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		return s
	}
	ref := func(key string) corev1.SecretKeySelector {
		return corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: key}
	}
	mcp := func(edit func(*skeinv1.MCPServer)) *skeinv1.Tool {
		t := &skeinv1.Tool{ObjectMeta: kubetest.Meta("my-tools.v2"), Spec: skeinv1.ToolSpec{MCP: &skeinv1.MCPServer{URL: "https://x.test/mcp"}}}
		edit(t.Spec.MCP)
		return t
	}

	It("have the values of their Secrets, without the newline that files end in, and a version that changes with them", func(ctx SpecContext) {
		s := secret(map[string]string{"key": "k\n", "token": "t\n"})
		c := kubetest.Cluster(interceptor.Funcs{}, s)
		t := mcp(func(m *skeinv1.MCPServer) {
			m.Headers = []skeinv1.ToolHeader{{Name: "x-key", SecretKeyRef: ptr.To(ref("key"))}, {Name: "X-Plain", Value: ptr.To("p")}}
			m.Auth = &skeinv1.ToolAuth{Bearer: &skeinv1.ToolSecret{SecretKeyRef: ref("token")}}
		})
		t.Generation = 3
		first, err := resolver(c).Tools.Resolve(ctx, t)
		Expect(err).NotTo(HaveOccurred())
		Expect(first.MCP.Generation).To(Equal(int64(3)))
		Expect(first.MCP.Headers).To(And(HaveKeyWithValue("X-Key", []string{"k"}), HaveKeyWithValue("X-Plain", []string{"p"}), HaveKeyWithValue("Authorization", []string{"Bearer t"})))
		Expect(first.MCP.Prefix).To(Equal("my_tools_v2_"))
		s.Data["token"] = []byte("other")
		Expect(c.Update(ctx, s)).To(Succeed())
		second, err := resolver(c).Tools.Resolve(ctx, t)
		Expect(err).NotTo(HaveOccurred())
		Expect(second.MCP.Version).NotTo(Equal(first.MCP.Version))
		Expect(second.MCP.Headers.Get("Authorization")).To(Equal("Bearer other"))
	})

	It("say what is missing or wrong, without the values", func(ctx SpecContext) {
		d := resolver(kubetest.Cluster(interceptor.Funcs{}, secret(map[string]string{"broken": "a\nb", "empty": ""})))
		auth := func(key string) *skeinv1.Tool {
			return mcp(func(m *skeinv1.MCPServer) {
				m.Auth = &skeinv1.ToolAuth{Header: &skeinv1.ToolAuthHeader{Name: "X-Key", SecretKeyRef: ref(key)}}
			})
		}
		_, err := d.Tools.Resolve(ctx, auth("none"))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonReferenceNotFound, "spec.mcp.auth", `"none"`))
		_, err = d.Tools.Resolve(ctx, auth("broken"))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidSpec, "spec.mcp.auth", "line break"))
		_, err = d.Tools.Resolve(ctx, auth("empty"))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidSpec, "spec.mcp.auth", "empty"))
		_, err = d.Tools.Resolve(ctx, &skeinv1.Tool{ObjectMeta: kubetest.Meta("http"), Spec: skeinv1.ToolSpec{HTTP: &skeinv1.HTTPTool{URL: "https://x.test/{{ y }}"}}})
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidSpec, "spec.http.url", "{{ y }}"))
		_, err = d.Tools.Resolve(ctx, &skeinv1.Tool{ObjectMeta: kubetest.Meta("none")})
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidSpec, "code, http or mcp"))
	})

	DescribeTable("must have names that do not collide", func(wrong string, servers map[string]*skeinv1.MCPServer) {
		tools := []skeinv1.PromptTool{{Name: "a"}, {Name: "b"}, {Name: "x-y"}}
		if wrong == "" {
			Expect(definitions.CheckServerNames(tools, servers)).To(Succeed())
			return
		}
		Expect(definitions.CheckServerNames(tools, servers)).To(kubetest.NotReady(skeinv1.ReasonInvalidSpec, wrong, "spec.mcp.prefix"))
	},
		Entry("by their own prefixes", "", map[string]*skeinv1.MCPServer{"a": {}, "b": {}}),
		Entry("the same prefix", `both begin with "p_"`, map[string]*skeinv1.MCPServer{"a": {Prefix: ptr.To("p_")}, "b": {Prefix: ptr.To("p_")}}),
		Entry("the same prefix, and other tools", "", map[string]*skeinv1.MCPServer{"a": {Prefix: ptr.To(""), Tools: []string{"m"}}, "b": {Prefix: ptr.To(""), Tools: []string{"n"}}}),
		Entry("the name of a Tool", `Tool "x-y"`, map[string]*skeinv1.MCPServer{"a": {Prefix: ptr.To(""), Tools: []string{"x.y"}}}),
		Entry("the same name", `the tool "m" of the MCP server "a"`, map[string]*skeinv1.MCPServer{"a": {Prefix: ptr.To(""), Tools: []string{"m"}}, "b": {Prefix: ptr.To(""), Tools: []string{"m"}}}),
	)
})
