package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-dev/skein/hack/devcluster/internal/addons"
	"github.com/skein-dev/skein/hack/devcluster/internal/image"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/netpol"
	"github.com/skein-dev/skein/hack/devcluster/internal/pki"
	"github.com/skein-dev/skein/hack/devcluster/internal/ready"
)

// Daemons are the node's programs, in the order in which they start.
var Daemons = []string{"containerd", "kubelet", "kube-proxy"}

// snapshotterFile returns the file with the name of the node's containerd snapshotter.
func snapshotterFile(d layout.Dir) string { return filepath.Join(d.Node(), "snapshotter") }

func pidFile(d layout.Dir, name string) string { return filepath.Join(d.Node(), name+".pid") }

// manager starts the node's programs inside its namespaces.
type manager struct {
	dir     layout.Dir
	cfg     layout.Config
	set     settings
	report  *os.File
	control <-chan string // messages of the supervisor; closed when the supervisor is gone
	env     []string
}

// Manage is the second process of the node. It runs everything else until it gets a signal, its supervisor ends or a
// part keeps failing. Whatever remains then ends with the namespaces.
func Manage(d layout.Dir) error {
	syscall.CloseOnExec(reportFD)
	syscall.CloseOnExec(controlFD)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cfg, err := d.ReadConfig()
	if err != nil {
		return err
	}
	m := &manager{dir: d, cfg: cfg, report: os.NewFile(reportFD, "report"), control: lines(os.NewFile(controlFD, "control"))}
	m.env = append(os.Environ(), "PATH="+filepath.Join(cfg.NodeBin, "bin")+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	err = m.run(ctx)
	if ctx.Err() != nil {
		return nil // asked to stop
	}
	return err
}

func (m *manager) say(line string) { fmt.Fprintln(m.report, line) }

// lines returns a channel with the lines of f. It ends with f, or with the process.
func lines(f *os.File) <-chan string {
	c := make(chan string)
	go func() {
		defer close(c)
		for s := bufio.NewScanner(f); s.Scan(); {
			c <- s.Text()
		}
	}()
	return c
}

// await returns when the supervisor sends message.
func (m *manager) await(ctx context.Context, message string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case got, ok := <-m.control:
		if !ok {
			return errors.New("the supervisor is gone")
		}
		if got != message {
			return fmt.Errorf("the supervisor said %q instead of %q", got, message)
		}
		return nil
	}
}

func (m *manager) run(ctx context.Context) (err error) {
	// Programs and containers inherit the limit of open files.
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Cur = files.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	if m.set, err = newSettings(m.dir, m.cfg); err != nil {
		return err
	}
	if err := writeConfigs(m.set); err != nil {
		return err
	}
	if err := os.WriteFile(snapshotterFile(m.dir), []byte(m.set.Snapshotter), 0o644); err != nil {
		return err
	}
	if err := writeResolvConf(m.cfg, filepath.Join(m.dir.Node(), "resolv.conf")); err != nil {
		return err
	}
	if err := m.await(ctx, linkUp); err != nil {
		return err
	}
	if err := setUpInside(m.cfg); err != nil {
		return err
	}
	policies, err := netpol.New(m.cfg.PodCIDR, m.dir.Containerd())
	if err != nil {
		return err
	}
	// From here on nothing in the pods' range passes unless its pod and policies are known.
	if err := policies.Lock(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return m.daemon("containerd", filepath.Join(m.set.Bin, "containerd"), "--config", filepath.Join(m.dir.Node(), "containerd.toml")).run(ctx)
	})
	g.Go(func() error { return m.startPods(ctx, g, policies) })
	return g.Wait()
}

// startPods starts what needs the API server.
func (m *manager) startPods(ctx context.Context, g *errgroup.Group, policies *netpol.Enforcer) error {
	if err := ready.Exists(ctx, "containerd", func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", m.dir.Containerd())
		if err == nil {
			c.Close()
		}
		return err
	}); err != nil {
		return err
	}
	if err := m.loadImages(ctx); err != nil {
		return err
	}
	m.say("the container runtime is ready")
	if err := m.await(ctx, apiReady); err != nil {
		return err
	}
	p := pki.Dir(m.dir.PKI())
	g.Go(func() error { return policies.Run(ctx, p.Kubeconfig(pki.NetworkPolicy)) })
	g.Go(func() error {
		return m.daemon("kubelet", "/proc/self/exe", "--config="+filepath.Join(m.dir.Node(), "kubelet.yaml"),
			"--kubeconfig="+p.Kubeconfig(pki.Kubelet), "--root-dir=/var/lib/kubelet",
			"--hostname-override="+m.cfg.NodeName(), "--node-ip="+m.cfg.NodeIP().String(), "-v=1").run(ctx)
	})
	g.Go(func() error {
		return m.daemon("kube-proxy", "/proc/self/exe", "--kubeconfig="+p.Kubeconfig(pki.KubeProxy), "--proxy-mode=nftables",
			"--cluster-cidr="+m.cfg.PodCIDR.String(), "--hostname-override="+m.cfg.NodeName(), "--nodeport-addresses=primary",
			"--oom-score-adj=0", "--conntrack-max-per-core=0", "--conntrack-min=0", // both are settings of the whole machine
			"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249").run(ctx)
	})
	if err := m.awaitDNS(ctx); err != nil {
		return err
	}
	m.say(usableLine)
	return m.report.Close()
}

func (m *manager) daemon(name, path string, args ...string) daemon {
	return daemon{name: name, path: path, args: args, dir: m.dir, env: m.env}
}

// loadImages imports the node's own images into containerd.
func (m *manager) loadImages(ctx context.Context) error {
	for _, i := range []struct{ name, bin, as string }{
		{addons.PauseImage, filepath.Join(m.set.Bin, "pause"), "pause"},
		{addons.DNSImage, filepath.Join(m.cfg.DNSBin, "bin", "coredns"), "coredns"},
	} {
		archive := filepath.Join(m.dir.Node(), i.as+".tar")
		if err := image.Write(image.Spec{Name: i.name, Files: map[string]string{"/" + i.as: i.bin}, Entrypoint: []string{"/" + i.as}, User: 65532}, archive); err != nil {
			return err
		}
		if err := Import(ctx, m.dir, m.cfg, archive); err != nil {
			return err
		}
		if err := os.Remove(archive); err != nil {
			return err
		}
	}
	return nil
}

// Import loads an image archive, OCI or Docker, into the node. It may be called on the host.
func Import(ctx context.Context, d layout.Dir, cfg layout.Config, archive string) error {
	snap, err := os.ReadFile(snapshotterFile(d))
	if err != nil {
		return fmt.Errorf("the node is not ready for images: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(cfg.NodeBin, "bin", "ctr"), "--address", d.Containerd(), "--namespace", "k8s.io",
		"images", "import", "--local", "--snapshotter="+string(snap), archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("loading %s: %w: %s", archive, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// awaitDNS returns when cluster DNS answers on its Service address. It works last, because it needs the kubelet,
// kube-proxy and a pod.
func (m *manager) awaitDNS(ctx context.Context) error {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(m.cfg.DNSServiceIP().String(), "53"))
	}}
	return ready.Exists(ctx, "cluster DNS", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		a, err := r.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
		if err == nil && (len(a) != 1 || a[0] != m.cfg.APIServiceIP().String()) {
			err = fmt.Errorf("it says %v", a)
		}
		return err
	})
}

// writeResolvConf writes the resolv.conf of pods that do not use cluster DNS, including CoreDNS: the host's servers
// when pods can reach them, else none.
func writeResolvConf(cfg layout.Config, path string) error {
	out := "# no servers: this cluster has no egress\n"
	if cfg.Egress {
		out = ""
		for _, s := range cfg.Nameservers {
			out += "nameserver " + s + "\n"
		}
	}
	return os.WriteFile(path, []byte(out), 0o644)
}
