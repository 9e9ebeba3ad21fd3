// Package cli implements the commands of devcluster.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/node"
	"github.com/skein-dev/skein/hack/devcluster/internal/supervisor"
)

const usage = `devcluster: a real Kubernetes for development and tests

  up        start a cluster in the background; returns when pods can run
  down      stop it and remove everything it left, after a crash too
  status    one line for each part; exit code 1 when it is not up
  env       print KUBECONFIG and KUBEBUILDER_ASSETS
  load      put an image, from an archive or a static binary, into the node
  image     write an image archive from a static binary
  build     build what is missing, and print where it is

  kubectl, kube-apiserver, etcd, kube-controller-manager, kube-scheduler, kubelet, kube-proxy: the upstream programs

Each command explains its flags with --help.
`

// errUsage is a mistake in the command line that was explained already.
var errUsage = errors.New("usage")

type command func(ctx context.Context, args []string) (code int, err error)

// Run executes a command line without the program's name, and returns the exit code.
func Run(args []string, start supervisor.StartControlPlane) (int, error) {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	commands := map[string]command{
		"up": up, "down": down, "status": status, "env": env, "load": load, "image": writeImage,
		superviseCommand: func(ctx context.Context, args []string) (int, error) { return supervise(ctx, args, start) },
		node.InitCommand: func(_ context.Context, args []string) (int, error) {
			return inNode(args, node.Init)
		},
		node.ManageCommand: func(_ context.Context, args []string) (int, error) {
			return inNode(args, node.Manage)
		},
		"build": func(context.Context, []string) (int, error) {
			return 1, errors.New("build is a command of devcluster.sh: this binary is what it builds")
		},
	}
	f, ok := commands[name]
	switch {
	case ok:
	case name == "", name == "help", strings.TrimLeft(name, "-") == "h", strings.TrimLeft(name, "-") == "help":
		fmt.Print(usage)
		return 0, nil
	default:
		fmt.Fprint(os.Stderr, usage)
		return 2, fmt.Errorf("there is no command %q", name)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := f(ctx, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case errors.Is(err, errUsage):
		return 2, nil
	}
	return code, err
}

func inNode(args []string, f func(layout.Dir) error) (int, error) {
	if len(args) != 1 {
		return 2, errors.New("this command is the node's own; use up")
	}
	if err := f(layout.Dir(args[0])); err != nil {
		return 1, err
	}
	return 0, nil
}

// place are the flags that identify the cluster.
type place struct{ dir, name string }

func (p *place) register(fs *flag.FlagSet) {
	fs.StringVar(&p.dir, "dir", os.Getenv("SKEIN_DEVCLUSTER_DIR"), "run `directory`; by default one named after the cluster in the system's folder for temporary files")
	fs.StringVar(&p.name, "name", "skein", "`name` of the cluster; several can run side by side")
}

func (p *place) resolve() (layout.Dir, error) { return layout.ResolveDir(p.dir, p.name) }

// parse parses flags and refuses other arguments.
func parse(fs *flag.FlagSet, args []string) error {
	fs.SetOutput(os.Stderr)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "devcluster %s takes flags only, got %q\n", fs.Name(), fs.Arg(0))
		return errUsage
	}
	return nil
}
