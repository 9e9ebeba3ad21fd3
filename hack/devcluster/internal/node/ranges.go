package node

import (
	"net/netip"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// setDefaults fills in the ranges that need no claim: Services exist only in the node, and without a node nothing has
// a pod's address.
func setDefaults(cfg *layout.Config) {
	if !cfg.ServiceCIDR.IsValid() {
		cfg.ServiceCIDR = netip.MustParsePrefix("100.97.0.0/16")
	}
	if !cfg.Node && !cfg.PodCIDR.IsValid() {
		cfg.PodCIDR = netip.MustParsePrefix("100.96.0.0/24")
	}
}
