package node

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/hack/devcluster/internal/addons"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/pki"
)

// settings are the values in the configuration files of the node's programs.
type settings struct {
	layout.Config
	NodeDir, Socket, Bin, CNI, GVisorPrograms, PauseImage, Snapshotter string
	CACert, Cert, Key                                                  string
	// NoOOMPriority means that this machine does not allow processes that the kernel should spare when memory is
	// short.
	NoOOMPriority bool
	CgroupV1      bool
	MaxFiles      uint64
}

func newSettings(d layout.Dir, cfg layout.Config) (settings, error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return settings{}, err
	}
	p := pki.Dir(d.PKI())
	return settings{
		Config: cfg, NodeDir: d.Node(), Socket: d.Containerd(),
		Bin: filepath.Join(cfg.NodeBin, "bin"), CNI: filepath.Join(cfg.NodeBin, "cni"), GVisorPrograms: filepath.Join(cfg.GVisorBin, "bin"),
		PauseImage: addons.PauseImage, Snapshotter: snapshotter(d),
		CACert: p.Cert(pki.CA), Cert: p.Cert(pki.Kubelet), Key: p.Key(pki.Kubelet),
		NoOOMPriority: !hasCapability(unix.CAP_SYS_RESOURCE), CgroupV1: !cgroupV2(), MaxFiles: min(files.Max, 1<<20),
	}, nil
}

// hasCapability reports whether a capability, by its number, is in this process's effective set.
func hasCapability(n uint) bool {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			var set uint64
			for _, c := range strings.TrimSpace(hex) {
				set = set<<4 | uint64(strings.IndexRune("0123456789abcdef", c))
			}
			return set&(1<<n) != 0
		}
	}
	return false
}

// The paths below are in the node's own /run and /var, so they are the usual ones. Only containerd's socket is in the
// run directory, where the host can reach it too.
var containerdConfig = template.Must(template.New("containerd").Parse(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs"]
[grpc]
address = "{{.Socket}}"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "{{.Snapshotter}}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{{.PauseImage}}"
[plugins."io.containerd.cri.v1.runtime"]
stream_server_address = "127.0.0.1"
disable_apparmor = true
restrict_oom_score_adj = {{.NoOOMPriority}}
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{{.CNI}}"]
conf_dir = "{{.NodeDir}}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{{.Bin}}/runc"
SystemdCgroup = false
{{- if .GVisor}}
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runsc]
runtime_type = "io.containerd.runsc.v1"
runtime_path = "{{.GVisorPrograms}}/containerd-shim-runsc-v1"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runsc.options]
TypeUrl = "io.containerd.runsc.v1.options"
ConfigPath = "{{.NodeDir}}/runsc.toml"
{{- end}}
`))

// The shim reads this file. Systrap needs neither KVM nor ptrace from the machine.
var runscConfig = template.Must(template.New("runsc").Parse(`binary_name = "{{.GVisorPrograms}}/runsc"
root = "/run/containerd/runsc"
[runsc_config]
platform = "systrap"
`))

// Each pod gets a separate routed link, so that everything that it sends passes the node's forward hook, where
// policies are enforced. A bridge would need the br_netfilter module for that, and would let pods reach each other on
// the link layer.
var cniConfig = template.Must(template.New("cni").Parse(`{
  "cniVersion": "1.0.0", "name": "devcluster", "plugins": [
    {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "/run/cni",
      "ranges": [[{"subnet": "{{.PodCIDR}}"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}, "backend": "nftables"}
  ]
}
`))

var kubeletConfig = template.Must(template.New("kubelet").Parse(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /{{.Cgroup}}
containerRuntimeEndpoint: unix://{{.Socket}}
clusterDNS: ["{{.DNSServiceIP}}"]
clusterDomain: cluster.local
resolvConf: {{.NodeDir}}/resolv.conf
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "{{.CACert}}"}}
authorization: {mode: Webhook}
tlsCertFile: {{.Cert}}
tlsPrivateKeyFile: {{.Key}}
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 200Mi, nodefs.available: 1%, imagefs.available: 1%}
oomScoreAdj: 0
maxOpenFiles: {{.MaxFiles}}
maxPods: 200
makeIPTablesUtilChains: false
serializeImagePulls: false
nodeStatusUpdateFrequency: 5s
shutdownGracePeriod: 0s
`))

// writeConfigs writes the files that containerd, the CNI plugins and the kubelet read.
func writeConfigs(s settings) error {
	if err := os.MkdirAll(filepath.Join(s.NodeDir, "cni"), 0o755); err != nil {
		return err
	}
	for name, t := range map[string]*template.Template{
		"containerd.toml": containerdConfig, "runsc.toml": runscConfig, "cni/10-devcluster.conflist": cniConfig, "kubelet.yaml": kubeletConfig,
	} {
		var b bytes.Buffer
		if err := t.Execute(&b, s); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.NodeDir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
