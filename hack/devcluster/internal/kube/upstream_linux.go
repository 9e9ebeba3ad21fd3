package kube

import (
	"context"

	"github.com/spf13/cobra"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// The node's programs exist on Linux only.
func init() {
	Commands["kubelet"] = run(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) })
	Commands["kube-proxy"] = run(proxy.NewProxyCommand)
}
