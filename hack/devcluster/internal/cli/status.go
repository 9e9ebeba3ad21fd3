package cli

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skein-dev/skein/hack/devcluster/internal/flock"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/node"
	"github.com/skein-dev/skein/hack/devcluster/internal/pki"
	"github.com/skein-dev/skein/hack/devcluster/internal/ready"
)

func status(ctx context.Context, args []string) (int, error) {
	var p place
	fl := flag.NewFlagSet("status", flag.ContinueOnError)
	p.register(fl)
	if err := parse(fl, args); err != nil {
		return 1, err
	}
	d, err := p.resolve()
	if err != nil {
		return 1, err
	}
	cfg, err := d.ReadConfig()
	if err != nil {
		fmt.Printf("nothing is up in %s\n", d)
		return 1, nil
	}
	s, err := d.ReadState()
	if err != nil {
		return 1, err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	up := report(ctx, w, d, cfg, s)
	if err := w.Flush(); err != nil {
		return 1, err
	}
	if !up {
		return 1, nil
	}
	return 0, nil
}

// report writes one line for each part, and reports whether all of them work.
func report(ctx context.Context, w io.Writer, d layout.Dir, cfg layout.Config, s layout.State) bool {
	pid := flock.Holder(d.SupervisorLock())
	if pid == 0 {
		fmt.Fprintf(w, "supervisor\tdown\t%s\n", s.Failure)
		fmt.Fprintf(w, "run directory\t\t%s (devcluster down cleans it up)\n", d)
		return false
	}
	ok := s.Ready
	line := func(name string, err error, detail string) {
		state := "ready"
		if err != nil {
			ok, state, detail = false, "not ready", err.Error()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, state, detail)
	}
	var starting error
	if !s.Ready {
		starting = errors.New("starting")
	}
	line("supervisor", starting, fmt.Sprintf("pid %d, mode: %s", pid, cfg.NodeReason))
	at := func(port int) string { return fmt.Sprintf("in pid %d, https://127.0.0.1:%d", pid, port) }
	line("etcd", probe(ctx, d, s.APIPort, "/readyz/etcd"), at(s.EtcdPort))
	line("kube-apiserver", probe(ctx, d, s.APIPort, "/readyz"), at(s.APIPort))
	line("kube-controller-manager", probe(ctx, d, s.ManagerPort, "/healthz"), at(s.ManagerPort))
	line("kube-scheduler", probe(ctx, d, s.SchedulerPort, "/healthz"), at(s.SchedulerPort))
	if cfg.Node {
		pids := node.PIDs(d, s.NodeInitPID)
		for _, name := range node.Daemons {
			var err error
			if pids[name] == 0 {
				err = errors.New("not running; see " + d.Log(name))
			}
			line(name, err, fmt.Sprintf("pid %d", pids[name]))
		}
		line("node", nodeReady(ctx, d, cfg), fmt.Sprintf("%s at %s, first process pid %d, pods in %s", cfg.NodeName(), cfg.NodeIP(), s.NodeInitPID, cfg.PodCIDR))
	} else {
		fmt.Fprintf(w, "node\tnone\t%s\n", cfg.NodeReason)
	}
	fmt.Fprintf(w, "kubeconfig\t\t%s\n", d.Kubeconfig())
	fmt.Fprintf(w, "logs\t\t%s\n", filepath.Dir(d.Log("x")))
	fmt.Fprintf(w, "versions\t\t%s\n", strings.Join(versions(cfg), ", "))
	return ok
}

// probe requests a component's health as the administrator.
func probe(ctx context.Context, d layout.Dir, port int, path string) error {
	if port == 0 {
		return errors.New("not started")
	}
	cfg, err := pki.Dir(d.PKI()).ClientTLS(pki.Admin)
	if err != nil {
		return err
	}
	t := &http.Transport{TLSClientConfig: cfg}
	defer t.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		return err
	}
	r, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, r.Status)
	}
	return nil
}

func nodeReady(ctx context.Context, d layout.Dir, cfg layout.Config) error {
	rc, err := clientcmd.BuildConfigFromFlags("", d.Kubeconfig())
	if err != nil {
		return err
	}
	rc.Timeout = 3 * time.Second
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	n, err := client.CoreV1().Nodes().Get(ctx, cfg.NodeName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	return ready.IsNodeReady(n)
}

// versions reads the versions of the components from the programs' build information.
func versions(cfg layout.Config) []string {
	self, _ := os.Executable()
	var out []string
	for _, b := range []struct{ path, module, name string }{
		{self, "k8s.io/kubernetes", "kubernetes"}, {self, "go.etcd.io/etcd/server/v3", "etcd"},
		{filepath.Join(cfg.NodeBin, "bin", "containerd"), "github.com/containerd/containerd/v2", "containerd"},
		{filepath.Join(cfg.NodeBin, "bin", "runc"), "github.com/opencontainers/runc", "runc"},
		{filepath.Join(cfg.DNSBin, "bin", "coredns"), "github.com/coredns/coredns", "coredns"},
		{filepath.Join(cfg.GVisorBin, "bin", "runsc"), "gvisor.dev/gvisor", "gvisor"},
	} {
		i, err := buildinfo.ReadFile(b.path) // without a node, or without gVisor, the program does not exist
		if err != nil {
			continue
		}
		for _, m := range append(i.Deps, &i.Main) {
			if m.Path == b.module {
				out = append(out, b.name+" "+m.Version)
			}
		}
	}
	return out
}
