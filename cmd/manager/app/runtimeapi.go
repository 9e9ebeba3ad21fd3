package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/apiserver"
	"github.com/skein-dev/skein/internal/apiserver/flow"
	"github.com/skein-dev/skein/internal/apiserver/serving"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/redact"
)

// The registration itself is part of the installation; the manager fills in its authority.
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,resourceNames=v1alpha1.runtime.skein.dev,verbs=get;patch
// The Secrets of the serving certificate and of the authority of the sandboxes.
// +kubebuilder:rbac:groups="",namespace=skein-system,resources=secrets,verbs=get;create;update

// addRuntimeAPI registers the runtime API with the cluster and serves it. It returns nil when the runtime API is
// switched off.
func (o *Options) addRuntimeAPI(ctx context.Context, cfg *rest.Config, mgr ctrl.Manager, data *data, eng *engine.Engine, children *kube.Children, effects *kube.Effects, d *draining) (*apiserver.Server, error) {
	if o.RuntimeAPIBindAddress == disabled {
		return nil, nil
	}
	listener, err := net.Listen("tcp", o.RuntimeAPIBindAddress)
	if err != nil {
		return nil, fmt.Errorf("--runtime-api-bind-address=%s: %w", o.RuntimeAPIBindAddress, err)
	}
	registration := serving.Options{Namespace: o.Namespace}
	if !o.inCluster() {
		registration.External = listener.Addr()
	}
	certificate, err := o.register(ctx, cfg, registration)
	if err != nil {
		return nil, closing(listener, err)
	}
	if err := mgr.Add(certificate); err != nil {
		return nil, closing(listener, err)
	}
	limits, err := o.runtimeAPILimits()
	if err != nil {
		return nil, closing(listener, err)
	}
	server, err := apiserver.New(apiserver.Options{
		Audit:       o.Audit,
		Flow:        limits,
		Memory:      o.memory,
		Threads:     data.threads,
		Engine:      eng,
		Children:    children,
		Effects:     effects,
		Objects:     kube.NewThreads(redact.NewClient(mgr.GetClient(), o.secrets), mgr.GetAPIReader()),
		Secrets:     o.secrets,
		Recorder:    o.recorder(mgr),
		Reader:      mgr.GetCache(),
		LiveReader:  mgr.GetAPIReader(),
		Kubeconfig:  cfg,
		Listener:    listener,
		Certificate: certificate,
		Draining:    d.is,
	})
	if err != nil {
		return nil, closing(listener, err)
	}
	return server, mgr.Add(server)
}

// flagLimits is the flag of the limits of the runtime API.
const flagLimits = "runtime-api-limits"

// runtimeAPILimits returns the limits of the runtime API (K8S-12).
func (o *Options) runtimeAPILimits() (flow.Limits, error) {
	limits := flow.Defaults()
	fields := limits.Fields()
	for name, n := range o.RuntimeAPILimits {
		field, ok := fields[name]
		if !ok {
			return limits, fmt.Errorf("--%s: there is no limit %q: name %s", flagLimits, name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if n < 0 {
			return limits, fmt.Errorf("--%s=%s=%d: give a positive number, or 0 for no limit", flagLimits, name, n)
		}
		*field = n
	}
	return limits, nil
}

// checkAudit returns the errors in the flags about the audit log.
func (o *Options) checkAudit() error {
	if o.Audit == nil {
		return nil
	}
	if o.Audit.LogOptions.Path != "" && o.Audit.PolicyFile == "" {
		return errors.New("--audit-log-path: nothing would be recorded: name a policy in --audit-policy-file too")
	}
	return errors.Join(o.Audit.Validate()...)
}

func closing(l net.Listener, err error) error {
	_ = l.Close()
	return err
}
