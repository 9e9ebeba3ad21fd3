package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

const (
	// requestTimeout bounds questions of the console itself, unless the command has a limit of its own.
	requestTimeout = 30 * time.Second
	// pageSize is how many objects are read at once.
	pageSize = 500
	// maxNamespaces bounds the list of namespaces.
	maxNamespaces = 10_000
	// reviewsAtOnce bounds questions about rights.
	reviewsAtOnce = 8
	// maxActionBytes bounds the bodies of the console's own requests.
	maxActionBytes = 64 << 10
)

// objects are clients of the Kubernetes API.
type objects struct {
	host           string
	skein          rest.Interface // for lists and watches
	authentication *authenticationclient.AuthenticationV1Client
	authorization  *authorizationclient.AuthorizationV1Client
	core           *coreclient.CoreV1Client
}

func newObjects(cfg *rest.Config) (*objects, error) {
	scheme := runtime.NewScheme()
	if err := skeinv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, skeinv1.GroupVersion)
	own := rest.CopyConfig(cfg)
	own.APIPath, own.GroupVersion, own.Timeout = "/apis", &skeinv1.GroupVersion, 0 // a watch lasts longer than a request
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	o := &objects{}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	o.host = strings.TrimSuffix(base.String(), "/")
	if o.skein, err = rest.RESTClientFor(own); err != nil {
		return nil, err
	}
	asked := rest.CopyConfig(cfg)
	asked.ContentType, asked.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if asked.Timeout == 0 {
		asked.Timeout = requestTimeout
	}
	if o.authentication, err = authenticationclient.NewForConfig(asked); err != nil {
		return nil, err
	}
	if o.authorization, err = authorizationclient.NewForConfig(asked); err != nil {
		return nil, err
	}
	o.core, err = coreclient.NewForConfig(asked)
	return o, err
}

// showSession answers GET /api/session: who looks at which cluster.
func (s *Server) showSession(w http.ResponseWriter, r *http.Request) {
	o := &s.options
	body := struct {
		Cluster   string `json:"cluster"`
		Context   string `json:"context"`
		User      string `json:"user"`
		Namespace string `json:"namespace"`
		Version   string `json:"version"`
	}{Cluster: s.objects.host, Context: o.Context, Namespace: o.Namespace, Version: o.Version}
	if o.AllNamespaces {
		body.Namespace = ""
	}
	review, err := s.objects.authentication.SelfSubjectReviews().Create(r.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case err == nil:
		body.User = review.Status.UserInfo.Username
	case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
		s.fail(w, r, err)
		return
	}
	answer(w, http.StatusOK, body)
}

// listNamespaces answers GET /api/namespaces.
func (s *Server) listNamespaces(w http.ResponseWriter, r *http.Request) {
	body := struct {
		Namespaces []string `json:"namespaces"`
		Complete   bool     `json:"complete"`
	}{Namespaces: []string{}, Complete: true}
	errMore := errors.New("there are more")
	list := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return s.objects.core.Namespaces().List(ctx, opts)
	})
	list.PageSize, list.PageBufferSize = pageSize, 1
	err := list.EachListItem(r.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
		if len(body.Namespaces) == maxNamespaces {
			return errMore
		}
		if ns, ok := o.(*corev1.Namespace); ok {
			body.Namespaces = append(body.Namespaces, ns.Name)
		}
		return nil
	})
	switch {
	case apierrors.IsForbidden(err):
		body.Namespaces, body.Complete = []string{s.options.Namespace}, false
	case errors.Is(err, errMore):
		body.Complete = false
	case err != nil:
		s.fail(w, r, err)
		return
	}
	answer(w, http.StatusOK, body)
}

// right is one that a part of the page needs.
type right struct{ verb, group, resource, subresource string }

func (r right) name() string {
	if r.subresource == "" {
		return r.resource
	}
	return r.resource + "/" + r.subresource
}

func ofThreads(verb string, sub runtimev1.Subresource) right {
	return right{verb, runtimev1.GroupVersion.Group, runtimev1.ThreadsResource, string(sub)}
}

// needed are the rights that parts of the page need.
var needed = map[string][]right{
	"send":     {ofThreads("create", runtimev1.SubresourceQueue)},
	"stop":     {ofThreads("create", runtimev1.SubresourceStop)},
	"continue": {ofThreads("create", runtimev1.SubresourceContinue)},
	"fork": {
		ofThreads("create", runtimev1.SubresourceFork), ofThreads("get", runtimev1.SubresourceMessages), ofThreads("get", runtimev1.SubresourceFiles),
		{"create", skeinv1.GroupVersion.Group, "threads", ""},
	},
	"approve":      {ofThreads("create", runtimev1.SubresourceApprovals)},
	"effects":      {{"patch", skeinv1.GroupVersion.Group, "scheduledeffects", ""}},
	"conversation": {ofThreads("get", runtimev1.SubresourceObserve), ofThreads("get", runtimev1.SubresourceEvents)},
	"files":        {ofThreads("get", runtimev1.SubresourceFiles)},
}

// namespaceOf returns the namespace that a request asks for; "" means all. It answers a request with another text.
func namespaceOf(w http.ResponseWriter, r *http.Request) (namespace string, ok bool) {
	namespace = r.URL.Query().Get("namespace")
	if namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("%q is no name of a namespace", namespace))
		return "", false
	}
	return namespace, true
}

// showRights answers GET /api/rights: what the viewer may do in a namespace, or in all when it is "".
func (s *Server) showRights(w http.ResponseWriter, r *http.Request) {
	namespace, ok := namespaceOf(w, r)
	if !ok {
		return
	}
	asked := map[right]*bool{}
	for _, all := range needed {
		for _, one := range all {
			asked[one] = new(bool)
		}
	}
	g, ctx := errgroup.WithContext(r.Context())
	g.SetLimit(reviewsAtOnce)
	for one, allowed := range asked {
		g.Go(func() error {
			review, err := s.objects.authorization.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: one.verb, Group: one.group, Resource: one.resource, Subresource: one.subresource,
				}},
			}, metav1.CreateOptions{})
			if err == nil {
				*allowed = review.Status.Allowed
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		s.fail(w, r, err)
		return
	}
	body := struct {
		Rights  map[string]bool   `json:"rights"`
		Missing map[string]string `json:"missing,omitempty"`
	}{Rights: map[string]bool{}, Missing: map[string]string{}}
	for name, all := range needed {
		missing := slices.IndexFunc(all, func(one right) bool { return !*asked[one] })
		if body.Rights[name] = missing < 0; missing >= 0 {
			one := all[missing]
			body.Missing[name] = fmt.Sprintf("%s %s.%s", one.verb, one.name(), one.group)
			if role := s.options.Role(one.verb, one.name(), one.group); role != "" {
				body.Missing[name] = fmt.Sprintf("%s %s: role %s", one.verb, one.name(), role)
			}
		}
	}
	answer(w, http.StatusOK, body)
}

// objectOf returns the object that a request of the page is about.
func objectOf(r *http.Request, uid types.UID) Object {
	return Object{Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), UID: uid}
}

// runEffect answers POST /api/effects/{namespace}/{name}/run.
func (s *Server) runEffect(w http.ResponseWriter, r *http.Request) {
	var body struct {
		UID types.UID `json:"uid"`
		Key string    `json:"key"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxActionBytes)).Decode(&body); err != nil || body.UID == "" || body.Key == "" {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, `the body is not one that the console knows: send {"uid":…,"key":…}, with the UID of the object and a key for each request`)
		return
	}
	lines, err := s.options.RunEffect(r.Context(), objectOf(r, body.UID), body.Key)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"lines": append([]string{}, lines...)})
}

// suspendEffect answers POST /api/effects/{namespace}/{name}/suspension.
func (s *Server) suspendEffect(w http.ResponseWriter, r *http.Request) {
	var body struct {
		UID     types.UID `json:"uid"`
		Suspend *bool     `json:"suspend"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxActionBytes)).Decode(&body); err != nil || body.Suspend == nil || body.UID == "" {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, `the body is not one that the console knows: send {"uid":…,"suspend":true} or {"uid":…,"suspend":false}, with the UID of the object`)
		return
	}
	changed, message, err := s.options.SuspendEffect(r.Context(), objectOf(r, body.UID), *body.Suspend)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"changed": changed, "message": message})
}
