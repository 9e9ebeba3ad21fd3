package cli

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/skein-dev/skein/hack/devcluster/internal/flock"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/node"
	"github.com/skein-dev/skein/hack/devcluster/internal/supervisor"
)

type upFlags struct {
	place
	node                   string
	audit, egress, stay    bool
	gvisor                 bool
	crds                   string
	pods, services, linked string
}

func up(ctx context.Context, args []string) (int, error) {
	var f upFlags
	fl := flag.NewFlagSet("up", flag.ContinueOnError)
	f.register(fl)
	fl.StringVar(&f.node, "node", "auto", "whether to run a node: true, false, or `auto` where it is possible")
	fl.BoolVar(&f.audit, "audit-log", false, "write who called the API server what to logs/audit.log, one JSON object a line, without bodies")
	fl.BoolVar(&f.egress, "egress", false, "let pods reach what this host reaches")
	fl.BoolVar(&f.gvisor, "gvisor", false, "offer gVisor as RuntimeClass gvisor; building it takes a minute the first time")
	fl.StringVar(&f.crds, "crds", "", "`folder` of custom resources, one .yaml file each, to create before the controllers start")
	fl.BoolVar(&f.stay, "foreground", false, "stay; an interrupt takes the cluster down")
	fl.StringVar(&f.pods, "pod-cidr", "", "addresses of pods, a `range` like 100.96.0.0/24; chosen by default")
	fl.StringVar(&f.services, "service-cidr", "", "addresses of Services, a `range` like 100.97.0.0/16")
	fl.StringVar(&f.linked, "link-cidr", "", "addresses of the link between host and node, a `range` of four like 100.95.0.0/30; chosen by default")
	if err := parse(fl, args); err != nil {
		return 1, err
	}
	d, err := f.resolve()
	if err != nil {
		return 1, err
	}
	if f.stay {
		runtime.LockOSThread() // the supervisor ends with the thread that started it: see endWithParent
	}
	already, err := start(ctx, d, f)
	if err != nil {
		return 1, err
	}
	if !f.stay {
		return 0, nil
	}
	if already {
		return 1, errors.New("--foreground needs to start the cluster itself: run down first")
	}
	fmt.Println("devcluster: Ctrl-C takes the cluster down")
	gone := make(chan struct{})
	go func() { // the supervisor may end by itself
		for flock.Held(d.SupervisorLock()) && ctx.Err() == nil {
			time.Sleep(200 * time.Millisecond)
		}
		close(gone)
	}()
	<-gone
	failed := ctx.Err() == nil
	if failed {
		if s, err := d.ReadState(); err == nil {
			fmt.Fprintln(os.Stderr, "devcluster: the cluster stopped:", s.Failure)
		}
	}
	if err := takeDown(context.Background(), d); err != nil {
		return 1, err
	}
	if failed {
		return 1, nil
	}
	return 0, nil
}

// start starts the cluster, or reports that it is up already.
func start(ctx context.Context, d layout.Dir, f upFlags) (already bool, err error) {
	cfg, err := f.config()
	if err != nil {
		return false, err
	}
	lock, err := claim(ctx, d)
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	running, err := answers(ctx, d)
	if err != nil {
		return false, err
	}
	if running {
		is, err := d.ReadConfig()
		if err != nil {
			return false, err
		}
		if f.node != "auto" && is.Node != cfg.Node || f.audit && !is.Audit || f.egress && !is.Egress || f.gvisor && !is.GVisor() || cfg.CRDs != "" && is.CRDs != cfg.CRDs {
			return false, fmt.Errorf("the cluster %s is up already, with other settings (%s): run down first", cfg.Name, is.NodeReason)
		}
		fmt.Printf("devcluster: %s is up already\n", cfg.Name)
		printUsage(d)
		return true, nil
	}
	if err := clean(d); err != nil { // remove what a crash left
		return false, err
	}
	fmt.Printf("devcluster: starting %s: %s\n", cfg.Name, cfg.NodeReason)
	if err := os.MkdirAll(filepath.Dir(d.Log("x")), 0o700); err != nil {
		return false, err
	}
	if err := os.MkdirAll(d.Node(), 0o755); err != nil {
		return false, err
	}
	if err := d.WriteConfig(cfg); err != nil {
		return false, err
	}
	began := time.Now()
	if err := launch(ctx, d, f.stay); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		logs := keepLogs(d)
		return false, errors.Join(err, logs, stopAndClean(context.Background(), d))
	}
	fmt.Printf("devcluster: %s is up after %.1f s\n", cfg.Name, time.Since(began).Seconds())
	printUsage(d)
	return false, nil
}

// answers reports whether a cluster runs in d. A supervisor that is about to end still holds its lock, so if its API
// server does not answer, answers waits until it has ended.
func answers(ctx context.Context, d layout.Dir) (bool, error) {
	for began := time.Now(); flock.Held(d.SupervisorLock()); time.Sleep(50 * time.Millisecond) {
		s, err := d.ReadState()
		if err == nil && s.Ready && probe(ctx, d, s.APIPort, "/readyz") == nil {
			return true, nil
		}
		if time.Since(began) > 15*time.Second || ctx.Err() != nil {
			return false, fmt.Errorf("a cluster runs in %s but does not answer: run down first", d)
		}
	}
	return false, nil
}

func printUsage(d layout.Dir) {
	fmt.Printf("  export KUBECONFIG=%s\n", d.Kubeconfig())
}

// config decides the settings of the cluster, except for its address ranges.
func (f upFlags) config() (layout.Config, error) {
	cfg := layout.Config{Name: f.name, Audit: f.audit, Egress: f.egress,
		NodeBin: os.Getenv("SKEIN_DEVCLUSTER_NODE"), DNSBin: os.Getenv("SKEIN_DEVCLUSTER_DNS")}
	for _, r := range []struct {
		flag, value string
		min, max    int
		to          *netip.Prefix
	}{{"--pod-cidr", f.pods, 16, 26, &cfg.PodCIDR}, {"--service-cidr", f.services, 12, 26, &cfg.ServiceCIDR}, {"--link-cidr", f.linked, 30, 30, &cfg.LinkCIDR}} {
		if r.value == "" {
			continue
		}
		p, err := netip.ParsePrefix(r.value)
		if err != nil || !p.Addr().Is4() || p.Bits() < r.min || p.Bits() > r.max {
			return cfg, fmt.Errorf("%s %q is not an IPv4 range between /%d and /%d, like 100.96.0.0/%d", r.flag, r.value, r.min, r.max, r.max)
		}
		*r.to = p.Masked()
	}
	if f.crds != "" {
		abs, err := filepath.Abs(f.crds)
		if err != nil {
			return cfg, err
		}
		if files, _ := filepath.Glob(filepath.Join(abs, "*.yaml")); len(files) == 0 {
			return cfg, fmt.Errorf("--crds: no .yaml file in %s", abs)
		}
		cfg.CRDs = abs
	}
	possible := node.Possible()
	if possible == nil && (cfg.NodeBin == "" || cfg.DNSBin == "") {
		possible = errors.New("the node's programs are not built: start it with hack/devcluster/devcluster.sh up")
	}
	switch f.node {
	case "true":
		if possible != nil {
			return cfg, fmt.Errorf("--node=true: %w", possible)
		}
		cfg.Node, cfg.NodeReason = true, "control plane and a node, as asked for"
	case "false":
		cfg.NodeReason = "control plane only, as asked for"
	case "auto":
		cfg.Node, cfg.NodeReason = true, "control plane and a node"
		if possible != nil {
			cfg.Node, cfg.NodeReason = false, "control plane only, so pods will not run: "+possible.Error()
		}
	default:
		return cfg, fmt.Errorf("--node is true, false or auto, not %q", f.node)
	}
	if f.egress {
		if !cfg.Node {
			return cfg, errors.New("--egress needs a node")
		}
		cfg.Nameservers = node.HostNameservers()
	}
	if f.gvisor {
		if !cfg.Node {
			return cfg, errors.New("--gvisor needs a node")
		}
		if cfg.GVisorBin = os.Getenv("SKEIN_DEVCLUSTER_GVISOR"); cfg.GVisorBin == "" {
			return cfg, errors.New("gVisor is not built: start the cluster with hack/devcluster/devcluster.sh up --gvisor")
		}
	}
	return cfg, nil
}

// claim creates the run directory and takes its lock.
func claim(ctx context.Context, d layout.Dir) (*flock.Lock, error) {
	for {
		if err := claimDir(d); err != nil {
			return nil, err
		}
		l, err := flock.Wait(ctx, d.Lock(), sayWaiting)
		if !errors.Is(err, fs.ErrNotExist) { // otherwise a down that was waited for removed it
			return l, err
		}
	}
}

func sayWaiting(pid int) { fmt.Printf("devcluster: waiting for another up or down (pid %d)\n", pid) }

// claimDir creates the run directory, which only this user may enter. All users can write to the folder of temporary
// files, so a directory of that name that belongs to another user is refused.
func claimDir(d layout.Dir) error {
	if err := os.MkdirAll(filepath.Dir(string(d)), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(string(d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	i, err := os.Lstat(string(d))
	if err != nil {
		return err
	}
	if st, ok := i.Sys().(*syscall.Stat_t); !i.IsDir() || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s exists and is not a directory of this user: choose another with --dir", d)
	}
	return foreign(d)
}

// foreign refuses a directory that contains anything other than a cluster, because down removes it.
func foreign(d layout.Dir) error {
	entries, err := os.ReadDir(string(d))
	if err != nil || len(entries) == 0 {
		return err
	}
	for _, p := range []string{d.Lock(), d.Config()} {
		if _, err := os.Stat(p); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s is not empty and is not a cluster's: choose another with --dir", d)
}

// launch starts the supervisor and prints its progress until the cluster is ready.
func launch(ctx context.Context, d layout.Dir, tied bool) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	log, err := os.OpenFile(d.Log("control-plane"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, superviseCommand, string(d))
	cmd.Args[0] = "devcluster"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.Dir = string(d)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if tied {
		endWithParent(cmd.SysProcAttr)
	}
	err = cmd.Start()
	w.Close()
	log.Close()
	if err != nil {
		return err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			go func() {
				for range lines { // let it write
				}
			}()
			return ctx.Err()
		case l, ok := <-lines:
			switch {
			case !ok:
				return fmt.Errorf("the cluster did not start: its supervisor ended; see %s", d.Log("control-plane"))
			case l == supervisor.ReadyLine:
				return nil
			case strings.HasPrefix(l, supervisor.FailedPrefix):
				return errors.New("the cluster did not start: " + strings.TrimPrefix(l, supervisor.FailedPrefix))
			default:
				fmt.Printf("  %4.1f s  %s\n", time.Since(began).Seconds(), l)
			}
		}
	}
}

// keepLogs moves the logs of a failed start out of the run directory, and returns an error that says where they are.
func keepLogs(d layout.Dir) error {
	_ = os.RemoveAll(failedLogs(d))
	if err := os.Rename(filepath.Dir(d.Log("x")), failedLogs(d)); err != nil {
		return nil
	}
	return fmt.Errorf("the logs are in %s", failedLogs(d))
}

// failedLogs returns the folder of the logs of the last failed start, which stay until the next down.
func failedLogs(d layout.Dir) string { return string(d) + "-failed-logs" }
