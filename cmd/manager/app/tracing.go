package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"time"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/skein-dev/skein/internal/telemetry/otlp"
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
		at, err := netip.ParseAddrPort(o.PprofBindAddress)
		if err != nil || !at.Addr().IsLoopback() {
			errs = append(errs, fmt.Errorf("--pprof-bind-address=%s: give an address of the loopback interface, such as 127.0.0.1:6060: profiles show memory, and are served without authentication", o.PprofBindAddress))
		}
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
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	o.Logger.Info("Profiles are served", "address", listener.Addr().String())
	// A profile lasts as long as its reader asked for, which must not hold up the end of the manager.
	server := &manager.Server{
		Name: "pprof", Server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, Listener: listener, ShutdownTimeout: ptr.To(time.Second),
	}
	if err := mgr.Add(server); err != nil {
		return closing(listener, err)
	}
	return nil
}
