package app

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/apiserver"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/gateway"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// servesGateways reports whether the listener for end users is switched on.
func (o *Options) servesGateways() bool {
	return o.GatewayBindAddress != "" && o.GatewayBindAddress != disabled
}

// trustedProxies returns the addresses of proxies in front of the gateways.
func (o *Options) trustedProxies() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range o.GatewayTrustedProxies {
		text = strings.TrimSpace(text)
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--gateway-trusted-proxies=%s: give an address such as 10.0.0.7, or a range such as 10.0.0.0/16", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// gatewayTLS returns how the gateways' listener speaks HTTPS, or nil when it speaks HTTP.
func (o *Options) gatewayTLS(mgr ctrl.Manager) (*tls.Config, error) {
	if o.GatewayCertFile == "" {
		return nil, nil
	}
	config, watcher, err := gateway.Certificate(o.GatewayCertFile, o.GatewayKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--gateway-tls-cert-file=%s, --gateway-tls-key-file=%s: %w", o.GatewayCertFile, o.GatewayKeyFile, err)
	}
	return config, mgr.Add(watcher)
}

// addGateway serves the ThreadGateways, when that is switched on.
func (o *Options) addGateway(mgr ctrl.Manager, data *data, eng *engine.Engine, resolver *definitions.Resolver, network *outbound.Network, api *apiserver.Server, d *draining) error {
	if !o.servesGateways() {
		return nil
	}
	proxies, err := o.trustedProxies()
	if err != nil {
		return err
	}
	config, err := o.gatewayTLS(mgr)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.GatewayBindAddress)
	if err != nil {
		return fmt.Errorf("--gateway-bind-address=%s: %w", o.GatewayBindAddress, err)
	}
	objects := kube.NewThreads(redact.NewClient(mgr.GetClient(), o.secrets), mgr.GetAPIReader())
	opts := gateway.Options{
		Listener: listener, TLS: config, Threads: data.threads, Engine: eng, Gateways: resolver.Gateways,
		Objects: objects, Receivers: resolver.Webhooks, Received: objects,
		Reader: mgr.GetCache(), Live: mgr.GetAPIReader(), Secrets: o.secrets, Network: network, TrustedProxies: proxies, Draining: d.is, Memory: o.memory, Logger: o.Logger.WithName("gateway"),
	}
	if api != nil {
		opts.Audit, opts.Share = api.Auditor(), api.Flow()
	}
	server, err := gateway.New(opts)
	if err != nil {
		return closing(listener, err)
	}
	if err := mgr.Add(server); err != nil {
		return closing(listener, err)
	}
	return nil
}
