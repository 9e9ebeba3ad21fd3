package app

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// toolNetwork returns the network that tools and models use to reach other hosts.
func (o *Options) toolNetwork(ctx context.Context, cfg *rest.Config, mgr ctrl.Manager) (*outbound.Network, error) {
	policy, err := o.toolPolicy()
	if err != nil {
		return nil, err
	}
	if _, err := mgr.GetCache().GetInformer(ctx, objects.MetadataOf("Namespace")); err != nil {
		return nil, fmt.Errorf("watch the Namespaces: %w", err)
	}
	policy.Opened = definitions.OpenedHosts(mgr.GetCache())
	if _, err := mgr.GetCache().GetInformer(ctx, &discoveryv1.EndpointSlice{}); err != nil {
		return nil, fmt.Errorf("watch the EndpointSlices of the API servers: %w", err)
	}
	own := newOwnAddresses(mgr.GetCache())
	if err := own.find(ctx, o.Logger, cfg); err != nil {
		return nil, err
	}
	own.listeners(o.RuntimeAPIBindAddress, o.MetricsBindAddress, o.HealthProbeBindAddress, o.GatewayBindAddress, o.PprofBindAddress)
	ranges, err := o.watchRanges(ctx, mgr)
	if err != nil {
		return nil, err
	}
	policy.Cluster = ranges.has
	policy.Forbidden = func(at netip.AddrPort) bool { return own.has(at) || ranges.node(at.Addr()) }
	return outbound.New(policy), nil
}

// toolPolicy returns the policy that the flags set.
func (o *Options) toolPolicy() (outbound.Policy, error) {
	allowed, err := outbound.ParseHosts(o.ToolAllowedHosts)
	if err != nil {
		return outbound.Policy{}, fmt.Errorf("--%s: %w", outbound.FlagAllowed, err)
	}
	private, err := outbound.ParseHosts(o.ToolPrivateHosts)
	if err != nil {
		return outbound.Policy{}, fmt.Errorf("--%s: %w", outbound.FlagPrivate, err)
	}
	return outbound.Policy{Allowed: allowed, Private: private}, nil
}

// ownAddresses are the addresses of the API servers and of the manager. No declaration of a namespace opens them to
// tools.
type ownAddresses struct {
	all   map[netip.Addr]bool // on every port
	exact map[netip.AddrPort]bool
	// servers reports whether an API server has an address at present.
	servers func(netip.AddrPort) bool
}

// newOwnAddresses returns the addresses of the API servers, which it reads from the cache each time.
func newOwnAddresses(reader client.Reader) *ownAddresses {
	return &ownAddresses{all: map[netip.Addr]bool{}, exact: map[netip.AddrPort]bool{}, servers: apiServers(reader)}
}

func (a *ownAddresses) has(at netip.AddrPort) bool {
	return a.all[at.Addr()] || a.exact[at] || a.servers(at)
}

// serviceHost is the suffix of the variables in which Kubernetes tells a pod the Services of its namespace. Those of
// the manager's namespace are its own, and the API server's is among them.
const serviceHost = "_SERVICE_HOST"

// find collects addresses from the configuration, the environment and the API server itself. They may be those of a
// load balancer, which no EndpointSlice names. It waits for an API server that is away.
func (a *ownAddresses) find(ctx context.Context, log logr.Logger, cfg *rest.Config) error {
	if u, err := url.Parse(cfg.Host); err == nil {
		addresses, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname()) // it was resolved before to reach the API server
		for _, ip := range addresses {
			a.all[ip.Unmap()] = true
		}
	}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if ip, err := netip.ParseAddr(value); err == nil && strings.HasSuffix(name, serviceHost) {
			a.all[ip.Unmap()] = true
		}
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = answerTime
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	var versions metav1.APIVersions
	if err := reach(ctx, log, "the API server at "+cfg.Host, clusterAway, func() error {
		return d.RESTClient().Get().AbsPath("/api").Do(ctx).Into(&versions)
	}); err != nil {
		return fmt.Errorf("ask the API server for its address: %w", err)
	}
	for _, s := range versions.ServerAddressByClientCIDRs {
		if at, err := netip.ParseAddrPort(s.ServerAddress); err == nil {
			a.exact[netip.AddrPortFrom(at.Addr().Unmap(), at.Port())] = true
		}
	}
	return nil
}

// listeners adds the manager's own listeners, at every address of the machine.
func (a *ownAddresses) listeners(bound ...string) {
	own, _ := net.InterfaceAddrs() // without them only loopback addresses remain, which are closed to tools anyway
	for _, address := range bound {
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			continue // this listener is switched off
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			continue
		}
		for _, of := range own {
			if prefix, err := netip.ParsePrefix(of.String()); err == nil {
				a.exact[netip.AddrPortFrom(prefix.Addr().Unmap(), uint16(port))] = true
			}
		}
	}
}
