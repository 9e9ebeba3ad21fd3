package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/telemetry/otlp"
	"github.com/skein-dev/skein/internal/telemetry/profiles"
)

// checkTelemetry checks the flags of traces and profiles.
func (o *Options) checkTelemetry() error {
	var errs []error
	if u, err := url.Parse(o.TracingEndpoint); o.TracingEndpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("--tracing-endpoint=%s: give the URL of a collector, such as http://collector:4318", o.TracingEndpoint))
	}
	on, err := otlp.Configured(o.TracingEndpoint)
	if err == nil && o.TracingContent && !on {
		err = errors.New("--tracing-content: there are no traces: give --tracing-endpoint or set OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	errs = append(errs, err)
	if o.PprofBindAddress != "" && o.PprofBindAddress != disabled {
		if err := profiles.Check(o.PprofBindAddress); err != nil {
			errs = append(errs, fmt.Errorf("--pprof-bind-address=%s: %w", o.PprofBindAddress, err))
		}
	}
	switch port := o.SandboxPprofPort; {
	case port == 0:
	case port < 1024 || port > 65535 || port == sandboxpod.Port || port == sandboxpod.HealthPort:
		errs = append(errs, fmt.Errorf("--sandbox-pprof-port=%d: give a port from 1024 to 65535 that sandboxes do not use, such as 6061; they use %d and %d", port, sandboxpod.Port, sandboxpod.HealthPort))
	case o.Sandbox != SandboxPods:
		errs = append(errs, fmt.Errorf("--sandbox-pprof-port=%d: it is for sandbox pods, and --sandbox=%s makes none", port, o.Sandbox))
	}
	return errors.Join(errs...)
}

// startTracing exports traces when there is an endpoint. stop exports what is left.
func (o *Options) startTracing(ctx context.Context) (stop func() error, err error) {
	on, err := otlp.Configured(o.TracingEndpoint)
	if err != nil || !on {
		return func() error { return nil }, err
	}
	options := otlp.Options{Endpoint: o.TracingEndpoint, Instance: o.Identity, Log: o.Logger.WithName("traces")}
	if o.TracingContent {
		options.Redact = o.secrets.Text
	}
	return otlp.Start(ctx, options)
}

// addPprof serves profiles on the loopback interface, when a flag asks for it.
func (o *Options) addPprof(mgr ctrl.Manager) error {
	if o.PprofBindAddress == "" || o.PprofBindAddress == disabled {
		return nil
	}
	listener, err := net.Listen("tcp", o.PprofBindAddress)
	if err != nil {
		return fmt.Errorf("--pprof-bind-address: %w", err)
	}
	o.Logger.Info("Profiles are served", "address", listener.Addr().String())
	// A profile lasts as long as its reader asked for, which must not hold up the end of the manager.
	server := &manager.Server{
		Name: "pprof", Server: profiles.Server(), Listener: listener, ShutdownTimeout: ptr.To(time.Second),
	}
	if err := mgr.Add(server); err != nil {
		return closing(listener, err)
	}
	return nil
}
