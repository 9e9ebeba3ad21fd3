// Withnode is devcluster with kubelet and kube-proxy, for a cluster with a real node: containerd, NetworkPolicies and
// cluster DNS. A machine where no node can run does not compile their 140 packages.
package main

import (
	_ "github.com/skein-dev/skein/hack/devcluster/internal/kube/nodeprograms"
	"github.com/skein-dev/skein/hack/devcluster/internal/program"
)

func main() { program.Main() }
