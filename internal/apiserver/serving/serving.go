// Package serving has the certificate of the runtime API and registers the API with the cluster.
package serving

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// APIServiceName is the name of the APIService that routes requests of the runtime API to this server.
var APIServiceName = runtimev1.GroupVersion.Version + "." + runtimev1.GroupVersion.Group

const (
	// The priorities of the group and its version: below custom resources (1000), so that `kubectl get threads` means
	// the objects of skein.dev.
	groupPriority   = 100
	versionPriority = 15

	secretCACert = "ca.crt"
	secretCAKey  = "ca.key"

	servicePortName = "https"
)

// servingScheme holds the kinds that registration reads and writes.
var servingScheme = runtime.NewScheme()

func init() {
	utilruntime.Must(corev1.AddToScheme(servingScheme))
	utilruntime.Must(discoveryv1.AddToScheme(servingScheme))
	utilruntime.Must(apiregistrationv1.AddToScheme(servingScheme))
}

// Options say how the cluster's API server reaches this one. Zero fields get the default named beside them.
type Options struct {
	Namespace string // of the Service and the Secret; skein-system
	Service   string // skein-runtime-api
	Secret    string // skein-runtime-api-tls
	Port      int32  // of the Service; 443

	// External is the address of a server outside the cluster, or nil for a pod behind the Service. A loopback
	// address is registered by name. That works where the API server routes aggregated requests to the Service, which
	// is its default. Any other address is registered as an endpoint of the Service. That works where the API server
	// routes them to endpoints (--enable-aggregator-routing).
	External net.Addr

	now func() time.Time
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		v   *string
		def string
	}{{&o.Namespace, "skein-system"}, {&o.Service, "skein-runtime-api"}, {&o.Secret, "skein-runtime-api-tls"}} {
		if *d.v == "" {
			*d.v = d.def
		}
	}
	if o.Port == 0 {
		o.Port = 443
	}
	if o.now == nil {
		o.now = time.Now
	}
}

// names returns the names in the certificate. The API server verifies <service>.<namespace>.svc whatever address it
// dials.
func (o *Options) names() []string {
	svc := o.Service + "." + o.Namespace + ".svc"
	names := []string{svc, svc + ".cluster.local", "localhost", "127.0.0.1", "::1"}
	if a, ok := o.External.(*net.TCPAddr); ok && !a.IP.IsLoopback() && !a.IP.IsUnspecified() {
		names = append(names, a.IP.String())
	}
	return names
}

// Ensure makes the runtime API reachable through the Kubernetes API. It keeps an authority and a serving
// certificate in a Secret that all replicas share, and an APIService that trusts the authority. Outside the cluster
// it also creates the Service. Pass the Certificate to the Server, and add it to the manager so that it is renewed in
// time.
func Ensure(ctx context.Context, cfg *rest.Config, o Options) (*Certificate, error) {
	o.setDefaults()
	c, err := client.New(cfg, client.Options{Scheme: servingScheme})
	if err != nil {
		return nil, fmt.Errorf("register the runtime API: %w", err)
	}
	r := &registrar{client: c, opts: o, certificate: &Certificate{}}
	r.certificate.renew = r.ensure
	if o.External != nil { // in a cluster, probes and operators check the APIService
		r.certificate.reached = func(ctx context.Context) error { return WaitAvailable(ctx, cfg) }
	}
	if err := r.ensure(ctx); err != nil {
		return nil, fmt.Errorf("register the runtime API: %w", err)
	}
	return r.certificate, nil
}

// registrar maintains the objects of the registration.
type registrar struct {
	client      client.Client
	opts        Options
	certificate *Certificate
}

func (r *registrar) ensure(ctx context.Context) error {
	if r.opts.External != nil {
		if err := r.ensureNamespace(ctx); err != nil {
			return err
		}
		if err := r.ensureExternalService(ctx); err != nil {
			return err
		}
	}
	if err := r.ensureSecret(ctx); err != nil {
		return err
	}
	return r.ensureAPIService(ctx)
}

// maxConflicts bounds how often replicas that start together may conflict before it is an error.
const maxConflicts = 5

// ensureSecret loads the certificate and creates what is missing, broken or due. When replicas race, one wins and the
// others use what it wrote.
func (r *registrar) ensureSecret(ctx context.Context) error {
	var err error
	for range maxConflicts {
		if err = r.trySecret(ctx); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("certificate in Secret %s/%s: %w", r.opts.Namespace, r.opts.Secret, err)
	}
	return nil
}

func (r *registrar) trySecret(ctx context.Context) error {
	now := r.opts.now()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.opts.Namespace, Name: r.opts.Secret}}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(s), s)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	missing := err != nil
	authority := keyPair{s.Data[secretCACert], s.Data[secretCAKey]}
	pair := keyPair{s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]}
	changed := false
	if ca, _, err := authority.parse(); err != nil || !isFresh(ca, now) {
		if authority, err = newAuthority("skein-runtime-api", now); err != nil {
			return err
		}
		changed = true
	}
	if changed || !pair.usable(authority, r.opts.names(), now) {
		if pair, err = newServing(authority, r.opts.names(), now); err != nil {
			return err
		}
		changed = true
	}
	if changed {
		s.Type = corev1.SecretTypeTLS
		s.Data = map[string][]byte{
			secretCACert: authority.cert, secretCAKey: authority.key,
			corev1.TLSCertKey: pair.cert, corev1.TLSPrivateKeyKey: pair.key,
		}
		setManaged(&s.ObjectMeta)
		if missing {
			err = r.client.Create(ctx, s)
		} else {
			err = r.client.Update(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	if cert, _ := r.certificate.CurrentCertKeyContent(); !bytes.Equal(cert, pair.cert) {
		r.certificate.set(pair, authority.cert)
	}
	return nil
}

// ensureAPIService creates the registration. Where an installation declares it, ensureAPIService sets only the certificate authority and,
// with Options.External, the Service.
func (r *registrar) ensureAPIService(ctx context.Context) error {
	want := apiregistrationv1.APIServiceSpec{
		Service: &apiregistrationv1.ServiceReference{Namespace: r.opts.Namespace, Name: r.opts.Service, Port: ptr.To(r.servicePort())},
		Group:   runtimev1.GroupVersion.Group, Version: runtimev1.GroupVersion.Version,
		CABundle: r.certificate.CABundle(), GroupPriorityMinimum: groupPriority, VersionPriority: versionPriority,
	}
	s := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: APIServiceName}}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(s), s)
	if apierrors.IsNotFound(err) {
		s.Spec = want
		setManaged(&s.ObjectMeta)
		return r.client.Create(ctx, s)
	}
	if err != nil {
		return err
	}
	before := s.DeepCopy()
	s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = want.CABundle, false
	if r.opts.External != nil {
		s.Spec.Service = want.Service
	}
	return r.client.Patch(ctx, s, client.MergeFrom(before))
}

func (r *registrar) ensureNamespace(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.opts.Namespace}}
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
		return err
	}
	if err := r.client.Create(ctx, ns); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// setManaged labels an object as one that the manager keeps.
func setManaged(m *metav1.ObjectMeta) {
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels[skeinv1.LabelManagedBy] = skeinv1.ManagedByValue
}

// WaitAvailable waits until the API server can reach the runtime API. Its error repeats what the API server says.
func WaitAvailable(ctx context.Context, cfg *rest.Config) error {
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: servingScheme})
	if err != nil {
		return err
	}
	last := "the APIService does not exist"
	for {
		w, err := c.Watch(ctx, &apiregistrationv1.APIServiceList{}, client.MatchingFields{"metadata.name": APIServiceName})
		if err != nil {
			return unavailable(last, err)
		}
		for e := range w.ResultChan() {
			s, ok := e.Object.(*apiregistrationv1.APIService)
			if !ok {
				continue
			}
			for _, cond := range s.Status.Conditions {
				if cond.Type != apiregistrationv1.Available {
					continue
				}
				if cond.Status == apiregistrationv1.ConditionTrue {
					w.Stop()
					return nil
				}
				last = cond.Reason + ": " + cond.Message
			}
		}
		w.Stop()
		if ctx.Err() != nil {
			return unavailable(last, context.Cause(ctx))
		}
	}
}

func unavailable(last string, err error) error {
	advice := ""
	switch {
	case strings.Contains(last, "FailedDiscoveryCheck"):
		advice = "; in a cluster where nothing routes Service addresses, such as one without nodes, run a manager outside of it with --runtime-api-bind-address=127.0.0.1:8444"
	case strings.Contains(last, "ExternalName"):
		advice = "; this API server routes aggregated requests to endpoints, which cannot be loopback: listen on another address of this machine with --runtime-api-bind-address"
	}
	return fmt.Errorf("the API server does not reach the runtime API (%s)%s: %w", last, advice, err)
}

// errInCluster keeps a manager outside the cluster from taking over the Service of an installation.
var errInCluster = errors.New("it has a selector, so a manager in the cluster serves the runtime API: remove that installation first, or use its runtime API")
