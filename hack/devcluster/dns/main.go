// CoreDNS with only the plugins that cluster DNS needs: a third of the usual build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

// The order in which a query passes through the plugins.
func init() {
	dnsserver.Directives = []string{"ready", "errors", "cache", "kubernetes", "forward"}
}

func main() { coremain.Run() }
