// Package layout defines where a cluster's files are, and the format of its configuration and state on disk.
// Everything of a cluster is in one run directory that down removes.
package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// Dir is a cluster's run directory.
type Dir string

// Files and folders of a run directory.
func (d Dir) Config() string         { return d.join("config.json") }
func (d Dir) State() string          { return d.join("state.json") }
func (d Dir) Kubeconfig() string     { return d.join("kubeconfig") }
func (d Dir) Lock() string           { return d.join("lock") }            // held by up and down while they work
func (d Dir) SupervisorLock() string { return d.join("supervisor.lock") } // held by the supervisor for its whole life
func (d Dir) NodeLock() string       { return d.join("node.lock") }       // held by the node's init for its whole life
func (d Dir) PKI() string            { return d.join("pki") }
func (d Dir) Etcd() string           { return d.join("etcd") }
func (d Dir) Images() string         { return d.join("images") }
func (d Dir) Node() string           { return d.join("node") }
func (d Dir) AuditPolicy() string    { return d.join("audit-policy.yaml") }
func (d Dir) AuditLog() string       { return d.Log("audit") }

// Log returns the log file of a component.
func (d Dir) Log(component string) string { return d.join("logs", component+".log") }

// Containerd returns the socket of the node's container runtime. It can be used from outside the node's namespaces.
func (d Dir) Containerd() string { return d.join("node", "containerd.sock") }

func (d Dir) join(p ...string) string { return filepath.Join(append([]string{string(d)}, p...)...) }

// MaxDirLen limits the length of a run directory's path, because the path of a Unix socket in it has at most 107
// bytes.
const MaxDirLen = 80

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`)

// ResolveDir returns the run directory for --dir and --name. dir takes precedence when it is set.
func ResolveDir(dir, name string) (Dir, error) {
	if !nameRE.MatchString(name) {
		return "", fmt.Errorf("the cluster name %q is not valid: use up to 30 lower-case letters, digits and inner dashes", name)
	}
	if dir == "" {
		base := "skein-devcluster-"
		if uid := os.Getuid(); uid != 0 {
			base += strconv.Itoa(uid) + "-"
		}
		dir = filepath.Join(os.TempDir(), base+name)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if len(abs) > MaxDirLen {
		return "", fmt.Errorf("the run directory %s is too long for the sockets in it (%d characters, at most %d): choose another with --dir", abs, len(abs), MaxDirLen)
	}
	return Dir(abs), nil
}

// Config is what up decided. The supervisor and the node read it.
type Config struct {
	Name string `json:"name"`
	// Node is whether there is a node. NodeReason says why, for people.
	Node       bool   `json:"node"`
	NodeReason string `json:"nodeReason"`
	Audit      bool   `json:"audit"`
	// Egress lets pods reach what the host reaches, through address translation on the host.
	Egress bool `json:"egress"`
	// Nameservers are the servers to which cluster DNS forwards other domains, with egress.
	Nameservers []string `json:"nameservers,omitempty"`
	// CRDs is a folder of custom resources to create before the controllers start. Empty means none.
	CRDs string `json:"crds,omitempty"`
	// PodCIDR, ServiceCIDR and LinkCIDR are the node's address ranges. The link has two addresses, the host's first.
	// Zero ranges are chosen when the node is started.
	PodCIDR     netip.Prefix `json:"podCIDR"`
	ServiceCIDR netip.Prefix `json:"serviceCIDR"`
	LinkCIDR    netip.Prefix `json:"linkCIDR"`
	// NodeBin, DNSBin and GVisorBin are the folders of the node's programs, of cluster DNS and of gVisor. GVisorBin
	// is empty in a cluster without gVisor.
	NodeBin   string `json:"nodeBin,omitempty"`
	DNSBin    string `json:"dnsBin,omitempty"`
	GVisorBin string `json:"gvisorBin,omitempty"`
}

// GVisor reports whether pods can run on gVisor.
func (c Config) GVisor() bool { return c.GVisorBin != "" }

// NodeName returns the name of the cluster's Node object, which is also the host name inside it.
func (c Config) NodeName() string { return c.Name + "-node" }

// Cgroup returns the parent of everything that the kubelet creates, below the root of each cgroup hierarchy.
func (c Config) Cgroup() string { return "skein-devcluster-" + c.Name }

// HostIP returns the host's address on the link: the API server's advertised address.
func (c Config) HostIP() netip.Addr { return c.LinkCIDR.Masked().Addr().Next() }

// NodeIP returns the node's address on the link: the kubelet's address.
func (c Config) NodeIP() netip.Addr { return c.HostIP().Next() }

// APIServiceIP returns the address of the Service kubernetes.default.
func (c Config) APIServiceIP() netip.Addr { return c.ServiceCIDR.Masked().Addr().Next() }

// DNSServiceIP returns the address of cluster DNS, the tenth of the range by convention.
func (c Config) DNSServiceIP() netip.Addr {
	a := c.ServiceCIDR.Masked().Addr()
	for range 10 {
		a = a.Next()
	}
	return a
}

// State is what the supervisor found out during the start.
type State struct {
	SupervisorPID int `json:"supervisorPID"`
	// NodeInitPID is the host's pid of the node's first process, or 0 without a node.
	NodeInitPID   int `json:"nodeInitPID,omitempty"`
	APIPort       int `json:"apiPort,omitempty"`
	EtcdPort      int `json:"etcdPort,omitempty"`
	ManagerPort   int `json:"controllerManagerPort,omitempty"`
	SchedulerPort int `json:"schedulerPort,omitempty"`
	// Ready is set once the cluster can be used.
	Ready bool `json:"ready"`
	// Failure is why the cluster stopped by itself.
	Failure string `json:"failure,omitempty"`
}

// ReadConfig returns what up decided. The error is fs.ErrNotExist when there is no cluster.
func (d Dir) ReadConfig() (Config, error) { return read[Config](d.Config()) }

// ReadState returns the supervisor's state, or a zero state when it has written none yet.
func (d Dir) ReadState() (State, error) {
	s, err := read[State](d.State())
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	return s, err
}

// WriteConfig stores c.
func (d Dir) WriteConfig(c Config) error { return write(d.Config(), c) }

// WriteState stores s.
func (d Dir) WriteState(s State) error { return write(d.State(), s) }

func read[T any](path string) (T, error) {
	var v T
	b, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// write replaces path in one step, so that a reader never sees an incomplete file.
func write(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
