// Package apitest runs the runtime API behind a real Kubernetes API server, for tests: a control plane with the
// aggregation layer, the custom resources, a real store, and a runtime API server registered with it.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver"
	"github.com/skein-dev/skein/internal/apiserver/family"
	"github.com/skein-dev/skein/internal/apiserver/serving"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/sourceroot"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

// Env is a control plane with the runtime API.
type Env struct {
	ControlPlane *envtest.Environment
	// Admin may do everything.
	Admin *rest.Config
	// Client acts as Admin.
	Client client.WithWatch
	// Threads is the domain behind the runtime API.
	Threads *thread.Service
	// Server is the runtime API; Addr is its direct address.
	Server *apiserver.Server
	Addr   net.Addr
	// Serving holds the options of its registration.
	Serving serving.Options

	stop []func() error
}

// Parts are the dependencies of the server besides the store.
type Parts struct {
	// Engine returns the engine for the domain service.
	Engine   func(*thread.Service) apiserver.Engine
	Children family.Children
	Effects  apiserver.Effects
	Objects  family.Objects
}

// patience bounds what must happen, with room for busy machines.
const patience = 5 * time.Minute

// Start starts everything and returns once the API server can reach the runtime API. dir is for data.
func Start(ctx context.Context, dir string, parts Parts) (e *Env, err error) {
	e = &Env{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	if err := e.startControlPlane(dir); err != nil {
		return e, err
	}
	if err := e.startServer(ctx, dir, parts); err != nil {
		return e, err
	}
	waitCtx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not available after %s", patience))
	defer cancel()
	return e, serving.WaitAvailable(waitCtx, e.Admin)
}

func (e *Env) startControlPlane(dir string) error {
	e.ControlPlane = &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(sourceroot.Dir(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		// The defaults, 20 and 10 seconds, are too short on a busy machine.
		ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience,
		CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: patience},
	}
	if err := e.setPorts(); err != nil {
		return err
	}
	proxy, err := newProxyIdentity(dir)
	if err != nil {
		return err
	}
	args := e.ControlPlane.ControlPlane.GetAPIServer().Configure()
	args.Set("requestheader-client-ca-file", proxy.ca).Set("requestheader-allowed-names", proxyName).
		Set("requestheader-username-headers", "X-Remote-User").Set("requestheader-group-headers", "X-Remote-Group").
		Set("requestheader-extra-headers-prefix", "X-Remote-Extra-").
		Set("proxy-client-cert-file", proxy.cert).Set("proxy-client-key-file", proxy.key)
	e.stop = append(e.stop, e.ControlPlane.Stop) // also after a failure: its programs may run although the definitions could not be installed
	if e.Admin, err = e.ControlPlane.Start(); err != nil {
		return err
	}
	e.Admin.QPS = -1
	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, skeinv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	e.Client, err = client.NewWithWatch(e.Admin, client.Options{Scheme: scheme})
	return err
}

// setPorts picks ports for etcd and the API server that no connection of the machine can use before they listen.
func (e *Env) setPorts() error {
	etcd, err := scratch.Port()
	if err != nil {
		return err
	}
	secure, err := scratch.Port()
	if err != nil {
		return err
	}
	const loopback = "127.0.0.1"
	e.ControlPlane.ControlPlane.Etcd = &envtest.Etcd{URL: &url.URL{Scheme: "http", Host: net.JoinHostPort(loopback, strconv.Itoa(etcd))}}
	serving := &e.ControlPlane.ControlPlane.GetAPIServer().SecureServing
	serving.Address, serving.Port = loopback, strconv.Itoa(secure)
	return nil
}

// startServer opens a store and a bucket in dir, and starts a runtime API server on them.
func (e *Env) startServer(ctx context.Context, dir string, parts Parts) error {
	db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: filepath.Join(dir, "db")})
	if err != nil {
		return err
	}
	e.stop = append(e.stop, db.Close)
	bucket, err := thread.OpenBucket(ctx, "file://"+filepath.Join(dir, "blobs"))
	if err != nil {
		return err
	}
	e.stop = append(e.stop, bucket.Close)
	e.Threads = thread.NewService(thread.Options{Store: db, Blobs: bucket})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	e.Addr = listener.Addr()
	e.Serving = serving.Options{External: e.Addr}
	certificate, err := serving.Ensure(ctx, e.Admin, e.Serving)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	e.Server, err = apiserver.New(apiserver.Options{
		Threads: e.Threads, Engine: parts.Engine(e.Threads), Children: parts.Children, Effects: parts.Effects, Objects: parts.Objects,
		Reader: e.Client, Kubeconfig: e.Admin, Listener: listener, Certificate: certificate,
	})
	if err != nil {
		return err
	}
	serveCtx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Server.Start(serveCtx) }()
	e.stop = append(e.stop, func() error { cancel(); return <-done })
	return nil
}

// Stop stops everything in reverse order.
func (e *Env) Stop() error {
	var errs []error
	for i := len(e.stop) - 1; i >= 0; i-- {
		errs = append(errs, e.stop[i]())
	}
	e.stop = nil
	return errors.Join(errs...)
}

// Namespace creates a new namespace for a test.
func (e *Env) Namespace(ctx context.Context) (string, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	err := e.Client.Create(ctx, ns)
	return ns.Name, err
}

// Thread creates a Thread object and its conversation, as the thread controller does.
func (e *Env) Thread(ctx context.Context, namespace, name string) (*skeinv1.Thread, *thread.State, error) {
	obj := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "helper"}}}
	if err := e.Client.Create(ctx, obj); err != nil {
		return nil, nil, err
	}
	_, _, err := e.Threads.Create(ctx, thread.NewThread{Thread: store.Thread{ID: string(obj.UID), Namespace: namespace, Name: name, Agent: "helper"}})
	if err != nil {
		return nil, nil, err
	}
	st, err := e.Threads.Open(ctx, string(obj.UID))
	return obj, st, err
}

// Kubeconfig writes a kubeconfig file for a user who has only the rights that are bound to the user.
func (e *Env) Kubeconfig(name, file string, groups ...string) (*rest.Config, error) {
	u, err := e.ControlPlane.AddUser(envtest.User{Name: name, Groups: groups}, e.Admin)
	if err != nil {
		return nil, fmt.Errorf("add user %s: %w", name, err)
	}
	data, err := u.KubeConfig()
	if err != nil {
		return nil, err
	}
	return u.Config(), os.WriteFile(file, data, 0o600)
}

// Allow grants a user rights in a namespace and returns once they apply. The API server watches roles, which takes a
// moment.
func (e *Env) Allow(ctx context.Context, namespace, user string, rules ...rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Namespace: namespace, GenerateName: "r-"}
	r := &rbacv1.Role{ObjectMeta: meta, Rules: rules}
	if err := e.Client.Create(ctx, r); err != nil {
		return err
	}
	err := e.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	})
	if err != nil {
		return err
	}
	resource, subresource, _ := strings.Cut(rules[0].Resources[0], "/")
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rules[0].Verbs[0], Group: rules[0].APIGroups[0], Resource: resource, Subresource: subresource,
		}}}
		err := e.Client.Create(ctx, review)
		return review.Status.Allowed, err
	})
}
