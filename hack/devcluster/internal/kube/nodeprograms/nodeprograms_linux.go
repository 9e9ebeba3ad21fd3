package nodeprograms

import (
	"context"

	"github.com/spf13/cobra"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/skein-dev/skein/hack/devcluster/internal/kube"
)

func init() {
	kube.Commands["kubelet"] = kube.Run(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) })
	kube.Commands["kube-proxy"] = kube.Run(proxy.NewProxyCommand)
}
