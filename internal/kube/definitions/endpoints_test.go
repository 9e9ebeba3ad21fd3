package definitions_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/kubetest"
)

var _ = Describe("Of endpoints with one path", Label("END-01"), func() {
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	shuffled := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if l, ok := list.(*skeinv1.ThreadEndpointList); ok { // a cache has no particular order
			rand.Shuffle(len(l.Items), func(i, j int) { l.Items[i], l.Items[j] = l.Items[j], l.Items[i] })
		}
		return err
	}}
	endpoint := func(name string, at time.Time) *skeinv1.ThreadEndpoint {
		e := &skeinv1.ThreadEndpoint{ObjectMeta: kubetest.Meta(name), Spec: skeinv1.ThreadEndpointSpec{Path: "/a", Code: skeinv1.CodeSource{Inline: "export default () => '" + name + "'"}}}
		e.CreationTimestamp = metav1.NewTime(at)
		return e
	}

	DescribeTable("the same one always answers, and the others report that their path is taken",
		func(ctx SpecContext, first string, edit func(e *skeinv1.ThreadEndpoint)) {
			var all []client.Object
			for i := range 20 {
				e := endpoint(fmt.Sprintf("e%02d", 19-i), made)
				edit(e)
				all = append(all, e)
			}
			c := kubetest.Cluster(shuffled, all...)
			for range 20 { // each like a manager that starts
				got, err := resolver(c).Endpoint(ctx, definition.EndpointQuery{Namespace: kubetest.Namespace, Agent: "a", Method: "GET", Path: []string{"a"}})
				Expect(err).NotTo(HaveOccurred())
				Expect(got.ObjectName).To(Equal(first))
			}
			var free []string
			for _, o := range all {
				var e skeinv1.ThreadEndpoint
				Expect(c.Get(ctx, client.ObjectKeyFromObject(o), &e)).To(Succeed())
				err := resolver(c).Endpoints.CheckPath(ctx, &e)
				var taken *definition.NotReadyError
				if err == nil {
					free = append(free, e.Name)
				} else {
					Expect(errors.As(err, &taken)).To(BeTrue(), "%v", err)
					Expect(taken.Reason).To(Equal(skeinv1.ReasonPathTaken))
				}
			}
			Expect(free).To(Equal([]string{first}))
		},
		Entry("the first by name", "e00", func(*skeinv1.ThreadEndpoint) {}),
		Entry("the oldest", "e07", func(e *skeinv1.ThreadEndpoint) {
			if e.Name == "e07" {
				e.CreationTimestamp = metav1.NewTime(made.Add(-time.Second))
			}
		}),
	)
})

var _ = Describe("Of the endpoints that a gateway names", Label("END-01"), func() {
	It("one answers, and the others neither answer nor are told of", func(ctx SpecContext) {
		endpoint := func(name, path string, methods ...skeinv1.EndpointMethod) *skeinv1.ThreadEndpoint {
			return &skeinv1.ThreadEndpoint{ObjectMeta: kubetest.Meta(name), Spec: skeinv1.ThreadEndpointSpec{Path: path, Methods: methods, Code: skeinv1.CodeSource{Inline: "export default () => ''"}}}
		}
		c := kubetest.Cluster(interceptor.Funcs{}, endpoint("any", "/a/[id]", "GET"), endpoint("exact", "/a/b", "GET", "POST"), endpoint("other", "/c", "GET"))
		find := func(only []string, method string, path ...string) (string, error) {
			e, err := resolver(c).Endpoint(ctx, definition.EndpointQuery{Namespace: kubetest.Namespace, Agent: "a", Method: method, Path: path, Only: only})
			if err != nil {
				return "", err
			}
			return e.ObjectName, nil
		}
		Expect(find(nil, "GET", "a", "b")).To(Equal("exact"))
		Expect(find([]string{"any"}, "GET", "a", "b")).To(Equal("any"))
		_, err := find([]string{"any"}, "POST", "a", "b")
		var method *definition.MethodError
		Expect(errors.As(err, &method)).To(BeTrue(), "%v", err)
		Expect(method.Allow).To(Equal([]string{"GET", "HEAD", "OPTIONS"}))
		_, err = find([]string{"any"}, "GET", "c")
		var unknown *definition.UnknownError
		Expect(errors.As(err, &unknown)).To(BeTrue(), "%v", err)
		Expect(unknown.Message).To(HaveSuffix("existing paths: /a/[id]"))
		_, err = find([]string{}, "GET", "c")
		Expect(err).To(HaveOccurred(), "none counts")
	})
})

var _ = Describe("An agent", func() {
	It("whose titles have no model works without titles", Label("RUN-07"), func(ctx SpecContext) {
		a := agent("a", "p")
		a.Spec.TitleModelRef = &skeinv1.LocalRef{Name: "namer"}
		model := func(name string) *skeinv1.Model {
			return scripted(name, skeinv1.ScriptStep{Content: "x"})
		}
		c := kubetest.Cluster(interceptor.Funcs{}, a, prompt("p", "m"), model("m"))
		got, err := resolver(c).Agent(ctx, kubetest.Namespace, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Titles).To(BeNil())
		kubetest.Create(ctx, c, model("namer"))
		got, err = resolver(c).Agent(ctx, kubetest.Namespace, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Titles.Name).To(Equal("namer"))
	})
})
