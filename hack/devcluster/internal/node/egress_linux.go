package node

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// With egress the host forwards packets for the node and translates its addresses. Forwarding is one setting for all
// clusters and the host. So each cluster's nftables table records, in the name of an empty chain, what the setting
// was before the first cluster. The last table's removal restores the setting. The state is in the kernel, so that no
// crash can lose it.

const (
	forwardSetting = "/proc/sys/net/ipv4/ip_forward"
	tablePrefix    = "skein-devcluster-"
	wasPrefix      = "forwarding-was-"
)

// table returns the name of the cluster's nftables table on the host.
func table(cfg layout.Config) string { return tablePrefix + cfg.Name }

func openEgress(cfg layout.Config) error {
	unlock, err := lockHost()
	if err != nil {
		return err
	}
	defer unlock()
	b, err := os.ReadFile(forwardSetting)
	if err != nil {
		return err
	}
	was := strings.TrimSpace(string(b))
	others, err := egressTables()
	if err != nil {
		return err
	}
	for _, w := range others {
		was = w
	}
	rules := fmt.Sprintf(`table ip %[1]s
delete table ip %[1]s
table ip %[1]s {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr { %[3]s, %[4]s } oifname != %[2]q masquerade
  }
  chain %[5]s { }
}
`, table(cfg), Link(cfg), cfg.PodCIDR, cfg.LinkCIDR, wasPrefix+was)
	if err := nft(rules); err != nil {
		return fmt.Errorf("translating the pods' addresses: %w", err)
	}
	return os.WriteFile(forwardSetting, []byte("1"), 0o644)
}

// closeEgress undoes openEgress. It does nothing when there is nothing to undo.
func closeEgress(cfg layout.Config) error {
	unlock, err := lockHost()
	if err != nil {
		return err
	}
	defer unlock()
	tables, err := egressTables()
	if err != nil {
		return err
	}
	was, ours := tables[table(cfg)]
	if !ours {
		return nil
	}
	// The setting first: as long as the table exists, another attempt knows what to restore.
	if len(tables) == 1 {
		if err := os.WriteFile(forwardSetting, []byte(was), 0o644); err != nil {
			return err
		}
	}
	return nft(fmt.Sprintf("delete table ip %s\n", table(cfg)))
}

// egressTables returns the tables of all clusters on this host, and the forwarding setting from before the first.
func egressTables() (map[string]string, error) {
	out, err := exec.Command("nft", "list", "chains", "ip").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("nft: %w: %s", err, bytes.TrimSpace(out))
	}
	tables := map[string]string{}
	table := ""
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		switch {
		case len(f) > 2 && f[0] == "table":
			table = f[2]
		case len(f) > 1 && f[0] == "chain" && strings.HasPrefix(table, tablePrefix) && strings.HasPrefix(f[1], wasPrefix):
			tables[table] = strings.TrimPrefix(f[1], wasPrefix)
		}
	}
	return tables, nil
}

// lockHost keeps clusters from changing the host's settings at the same time. The lock is on a folder that every host
// has, so that it leaves no file.
func lockHost() (unlock func(), err error) {
	f, err := os.Open("/")
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("waiting for other clusters: %w", err)
	}
	return func() { f.Close() }, nil
}

// nft applies rules in one transaction.
func nft(rules string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// HostNameservers returns the DNS servers of this host that pods can use too, which excludes those on loopback.
func HostNameservers() []string {
	for _, path := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var servers []string
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 2 || f[0] != "nameserver" {
				continue
			}
			if a, err := netip.ParseAddr(f[1]); err == nil && a.Is4() && !a.IsLoopback() {
				servers = append(servers, f[1])
			}
		}
		if len(servers) > 0 {
			return servers
		}
	}
	return nil
}
