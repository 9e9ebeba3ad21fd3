// Package kube contains the upstream programs: their unchanged commands, and a control plane that runs etcd, the API
// server, the controller manager and the scheduler in one process. It makes the binary big and slow to build, so only
// main imports it.
package kube

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Command is one upstream program: it reads os.Args and returns the exit code.
type Command func() int

// Commands are the upstream programs, by the name with which they are called.
var Commands = map[string]Command{
	"etcd": func() int { etcdmain.Main(os.Args); return 0 },
	"kubectl": func() int {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err) // exits with kubectl's own codes and messages
		}
		return 0
	},
	"kube-apiserver":          Run(apiserver.NewAPIServerCommand),
	"kube-controller-manager": Run(kcm.NewControllerManagerCommand),
	"kube-scheduler":          Run(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
}

// Run returns the command that runs a program of Kubernetes.
func Run(f func() *cobra.Command) Command { return func() int { return cli.Run(f()) } }
