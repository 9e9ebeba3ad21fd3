// Package program is the devcluster program. It has two main packages: one for a control plane alone, and withnode, which
// has the programs of a node too.
package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skein-dev/skein/hack/devcluster/internal/cli"
	"github.com/skein-dev/skein/hack/devcluster/internal/kube"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/supervisor"
)

// Main runs the command line and exits. Called as, or with the first argument, kube-apiserver, etcd, kubectl, …, it is
// that upstream program.
func Main() {
	if upstream, ok := kube.Commands[filepath.Base(os.Args[0])]; ok {
		os.Exit(upstream())
	}
	if len(os.Args) > 1 {
		if upstream, ok := kube.Commands[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			os.Exit(upstream())
		}
	}
	code, err := cli.Run(os.Args[1:], startControlPlane)
	if err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
	}
	os.Exit(code)
}

func startControlPlane(ctx context.Context, d layout.Dir, cfg layout.Config, progress func(string)) (supervisor.ControlPlane, layout.State, error) {
	c, err := kube.Start(ctx, d, cfg, progress)
	if err != nil {
		return nil, layout.State{}, err
	}
	return c, c.Ports, nil
}
