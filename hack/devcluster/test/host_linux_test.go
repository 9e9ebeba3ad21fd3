package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/node"
)

// host is everything on the machine in which a cluster could leave a trace.
type host struct {
	mounts, links, routes, tables, cgroups, files []string
	settings                                      map[string]string
}

// Exclude what else may happen on the machine meanwhile: sessions, packages, containers of others. In folders that
// all programs share, only what a cluster's programs could have created counts.
var (
	elsewheres = regexp.MustCompile(`/run/user/|snap|binfmt_misc|/docker|/podman|/media/`)
	clusters   = regexp.MustCompile(`(?i)skein|dct|containerd|cri|kube|cni|runc|runsc|gvisor|etcd|netns|pods|containers|xtables|nft|calico|flannel`)
)

// look reads the host's state. It excludes what belongs to clusters other than c, because they may come and go
// meanwhile.
func look(c cluster) host {
	GinkgoHelper()
	h := host{settings: map[string]string{}}
	own := node.Link(layout.Config{Name: c.name})
	foreign := func(s string) bool {
		return strings.Contains(s, "skdc-") && !strings.Contains(s, own) ||
			strings.Contains(s, "skein-devcluster-") && !strings.Contains(s, c.name)
	}
	add := func(list *[]string, s string) {
		if s != "" && !foreign(s) {
			*list = append(*list, s)
		}
	}
	b, err := os.ReadFile("/proc/self/mounts")
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(b)) {
		if !elsewheres.MatchString(line) {
			add(&h.mounts, strings.TrimSpace(line))
		}
	}
	links, err := netlink.LinkList()
	Expect(err).NotTo(HaveOccurred())
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		add(&h.links, l.Attrs().Name)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	Expect(err).NotTo(HaveOccurred())
	for _, r := range routes {
		add(&h.routes, r.Dst.String()+" "+names[r.LinkIndex])
	}
	out, err := exec.Command("nft", "list", "tables").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	others := false
	for line := range strings.Lines(string(out)) {
		others = others || strings.Contains(line, "skein-devcluster-") && foreign(line)
		add(&h.tables, strings.TrimSpace(line))
	}
	for _, glob := range []string{"/sys/fs/cgroup/skein-*", "/sys/fs/cgroup/*/skein-*", "/sys/fs/cgroup/kubepods*", "/sys/fs/cgroup/*/kubepods*"} {
		found, err := filepath.Glob(glob)
		Expect(err).NotTo(HaveOccurred())
		for _, f := range found {
			add(&h.cgroups, f)
		}
	}
	for _, glob := range []string{c.dir + "*", "/run/*", "/run/netns/*", "/var/lib/*", "/var/log/*", "/etc/cni/*", "/opt/*"} {
		found, err := filepath.Glob(glob)
		Expect(err).NotTo(HaveOccurred())
		for _, f := range found {
			if clusters.MatchString(f) {
				add(&h.files, f)
			}
		}
	}
	for _, s := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
		"kernel/keys/root_maxbytes", "net/ipv4/conf/all/rp_filter", "net/netfilter/nf_conntrack_max",
		"net/bridge/bridge-nf-call-iptables", "kernel/hostname"} {
		if b, err := os.ReadFile("/proc/sys/" + s); err == nil {
			h.settings[s] = strings.TrimSpace(string(b))
		}
	}
	// All clusters with egress share forwarding, so it concerns this cluster only when there are no others.
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward"); err == nil && !others {
		h.settings["net/ipv4/ip_forward"] = strings.TrimSpace(string(b))
	}
	for _, l := range []*[]string{&h.mounts, &h.links, &h.routes, &h.tables, &h.cgroups, &h.files} {
		slices.Sort(*l)
	}
	return h
}

// expectSame compares two states part by part, so that a failure names the trace.
func expectSame(before, after host) {
	GinkgoHelper()
	Expect(after.mounts).To(Equal(before.mounts), "mounts")
	Expect(after.links).To(Equal(before.links), "network interfaces")
	Expect(after.routes).To(Equal(before.routes), "routes")
	Expect(after.tables).To(Equal(before.tables), "nftables tables")
	Expect(after.cgroups).To(Equal(before.cgroups), "cgroups")
	Expect(after.files).To(Equal(before.files), "files")
	expectSettings(before, after)
}

func expectSettings(before, after host) {
	GinkgoHelper()
	for name, was := range before.settings {
		if now, ok := after.settings[name]; ok {
			Expect(now).To(Equal(was), "kernel setting %s", name)
		}
	}
}

// processesOf returns the command lines of everything that runs for a cluster. Its own processes name its run
// directory; those of containers and shims are in its node's pid namespace.
func processesOf(c cluster, pidNamespace string) []string {
	GinkgoHelper()
	entries, err := os.ReadDir("/proc")
	Expect(err).NotTo(HaveOccurred())
	var out []string
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		line := strings.ReplaceAll(strings.TrimRight(string(b), "\x00"), "\x00", " ")
		ns, _ := os.Readlink(filepath.Join("/proc", e.Name(), "ns/pid"))
		if strings.Contains(line, c.dir) || pidNamespace != "" && ns == pidNamespace {
			out = append(out, e.Name()+" "+line)
		}
	}
	return out
}
