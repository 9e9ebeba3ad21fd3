package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/console"
)

// write answers a client of Kubernetes.
func write(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

func forbidden(w http.ResponseWriter) {
	status(w, &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "you may not"})
}

var _ = Describe("what the console says of the viewer", Label("CON-01"), func() {
	It("is who looks at which cluster", func(ctx SpecContext) {
		refused := false
		api := recording(func(w http.ResponseWriter, r *http.Request) {
			if refused {
				forbidden(w)
				return
			}
			write(w, authenticationv1.SelfSubjectReview{
				TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1"},
				Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "ada"}},
			})
		})
		o := optionsFor(api.Server)
		b := open(o)
		Expect(b.get(ctx, "/api/session").Text).To(MatchJSON(`{"cluster":"` + api.URL + `","context":"here","user":"ada","namespace":"demo","version":"v0"}`))
		refused = true
		Expect(b.get(ctx, "/api/session").Text).To(MatchJSON(`{"cluster":"` + api.URL + `","context":"here","user":"","namespace":"demo","version":"v0"}`))
		o.AllNamespaces = true
		Expect(open(o).get(ctx, "/api/session").Text).To(ContainSubstring(`"namespace":""`))
		api.CloseClientConnections()
		api.Listener.Close()
		Expect(b.get(ctx, "/api/session")).To(haveStatus(http.StatusBadGateway, "the API server cannot be reached"))
	})

	It("is the namespaces that the viewer may list", func(ctx SpecContext) {
		refused := false
		api := recording(func(w http.ResponseWriter, r *http.Request) {
			if refused {
				forbidden(w)
				return
			}
			list := corev1.NamespaceList{TypeMeta: metav1.TypeMeta{Kind: "NamespaceList", APIVersion: "v1"}}
			name := "b"
			if r.URL.Query().Get("continue") == "" {
				name, list.Continue = "a", "more"
			}
			list.Items = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: name}}}
			write(w, list)
		})
		b := open(optionsFor(api.Server))
		Expect(b.get(ctx, "/api/namespaces").Text).To(MatchJSON(`{"namespaces":["a","b"],"complete":true}`))
		refused = true
		Expect(b.get(ctx, "/api/namespaces").Text).To(MatchJSON(`{"namespaces":["demo"],"complete":false}`))
	})

	It("is what the viewer may do, and which role would help", Label("CON-03"), func(ctx SpecContext) {
		api := recording(func(w http.ResponseWriter, r *http.Request) {
			var review authorizationv1.SelfSubjectAccessReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			a := review.Spec.ResourceAttributes
			right := strings.Join([]string{a.Namespace, a.Verb, a.Group, a.Resource, a.Subresource}, " ")
			review.Status.Allowed = right != "demo create runtime.skein.dev threads queue" && right != "demo create skein.dev threads " && right != "demo patch skein.dev scheduledeffects " &&
				right != "demo get runtime.skein.dev threads events"
			write(w, review)
		})
		o := optionsFor(api.Server)
		o.Role = func(verb, resource, group string) string {
			if resource == "scheduledeffects" {
				return ""
			}
			return "role-of-" + resource
		}
		b := open(o)
		Expect(b.get(ctx, "/api/rights?namespace=demo").Text).To(MatchJSON(`{
			"rights": {"send":false,"stop":true,"continue":true,"fork":false,"approve":true,"effects":false,"conversation":false,"files":true},
			"missing": {"send":"create threads/queue: role role-of-threads/queue","fork":"create threads: role role-of-threads","effects":"patch scheduledeffects.skein.dev",
				"conversation":"get threads/events: role role-of-threads/events"}}`))
		Expect(b.get(ctx, "/api/rights?namespace=other").Text).To(MatchJSON(`{"rights": {"send":true,"stop":true,"continue":true,"fork":true,"approve":true,"effects":true,"conversation":true,"files":true}}`))
	})
})

var _ = Describe("effects", Label("CON-03"), func() {
	It("run at once, and say what became of it", func(ctx SpecContext) {
		s, _ := counting()
		o := optionsFor(s)
		var asked string
		var failure error
		o.RunEffect = func(_ context.Context, shown console.Object, key string) ([]string, error) {
			asked = fmt.Sprint(shown, " ", key)
			return []string{"2027-01-31T09:00:00Z: fires"}, failure
		}
		b := open(o)
		const body = `{"uid":"5f0c","key":"press-1"}`
		got := b.do(ctx, "POST", "/api/effects/demo/daily/run", body)
		Expect(got.Text).To(MatchJSON(`{"lines":["2027-01-31T09:00:00Z: fires"]}`))
		Expect(asked).To(Equal("{demo daily 5f0c} press-1"))

		failure = &console.Error{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Err: errors.New("it refused <b>this</b>")}
		Expect(b.do(ctx, "POST", "/api/effects/demo/daily/run", body)).To(haveStatus(http.StatusUnprocessableEntity, `it refused \u003cb\u003ethis`))
		failure = apierrors.NewForbidden(schema.GroupResource{Group: "skein.dev", Resource: "scheduledeffects"}, "daily", errors.New("no"))
		Expect(b.do(ctx, "POST", "/api/effects/demo/daily/run", body)).To(haveStatus(http.StatusForbidden, "is forbidden"))
		failure = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		Expect(b.do(ctx, "POST", "/api/effects/demo/daily/run", body)).To(haveStatus(http.StatusBadGateway, "the API server cannot be reached: dial: connection refused"))
		failure = errors.New("it has answered, and does not say how")
		Expect(b.do(ctx, "POST", "/api/effects/demo/daily/run", body)).To(haveStatus(http.StatusInternalServerError, `"message":"it has answered, and does not say how"`))
		asked = ""
		for _, wrong := range []string{"", "{}", `{"uid":"5f0c"}`, `{"key":"press-1"}`} {
			Expect(b.do(ctx, "POST", "/api/effects/demo/daily/run", wrong)).To(haveStatus(http.StatusBadRequest, "the body is not one"))
		}
		Expect(asked).To(BeEmpty())
		asked = ""
		Expect(b.get(ctx, "/api/effects/demo/daily/run")).To(haveStatus(http.StatusNotFound, ""))
		Expect(asked).To(BeEmpty())
	})

	It("are suspended and resumed", func(ctx SpecContext) {
		s, _ := counting()
		o := optionsFor(s)
		var asked []bool
		o.SuspendEffect = func(_ context.Context, shown console.Object, suspend bool) (bool, string, error) {
			Expect(shown).To(Equal(console.Object{Namespace: "demo", Name: "daily", UID: "5f0c"}))
			asked = append(asked, suspend)
			return suspend, map[bool]string{false: "its limit is reached"}[suspend], nil
		}
		b := open(o)
		Expect(b.do(ctx, "POST", "/api/effects/demo/daily/suspension", `{"uid":"5f0c","suspend":true}`).Text).To(MatchJSON(`{"changed":true,"message":""}`))
		Expect(b.do(ctx, "POST", "/api/effects/demo/daily/suspension", `{"uid":"5f0c","suspend":false}`).Text).To(MatchJSON(`{"changed":false,"message":"its limit is reached"}`))
		for _, body := range []string{"", "{}", `{"suspend":true,"uid":""}`, `{"uid":"5f0c"}`, `{"uid":"5f0c","suspend":"yes"}`, `[`, `{"uid":"5f0c","suspend":true` + strings.Repeat(" ", 100<<10) + "}"} {
			Expect(b.do(ctx, "POST", "/api/effects/demo/daily/suspension", body)).To(haveStatus(http.StatusBadRequest, "the body is not one"))
		}
		Expect(asked).To(Equal([]bool{true, false}))
	})
})
