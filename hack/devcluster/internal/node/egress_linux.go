package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// With egress the host forwards for the node and translates its addresses. Both settings are the host's, so what
// closeEgress has to undo is noted before it is changed.

const forwardSetting = "/proc/sys/net/ipv4/ip_forward"

func egressFile(d layout.Dir) string { return filepath.Join(string(d), "egress") }

// table is the name of the cluster's nftables table on the host.
func table(cfg layout.Config) string { return tablePrefix + cfg.Name }

const tablePrefix = "skein-devcluster-"

func openEgress(d layout.Dir, cfg layout.Config) error {
	tables, err := exec.Command("nft", "list", "tables", "ip").CombinedOutput()
	if err != nil {
		return fmt.Errorf("nft: %w: %s", err, bytes.TrimSpace(tables))
	}
	if strings.Contains(string(tables), tablePrefix) {
		// Two would not know which of them turns forwarding off.
		return errors.New("another cluster on this host has egress: only one can")
	}
	was, err := os.ReadFile(forwardSetting)
	if err != nil {
		return err
	}
	if err := os.WriteFile(egressFile(d), []byte(table(cfg)+" "+strings.TrimSpace(string(was))), 0o600); err != nil {
		return err
	}
	rules := fmt.Sprintf(`table ip %[1]s
delete table ip %[1]s
table ip %[1]s {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr { %[3]s, %[4]s } oifname != %[2]q masquerade
  }
}
`, table(cfg), Link(cfg), cfg.PodCIDR, cfg.LinkCIDR)
	if err := nft(context.Background(), rules); err != nil {
		return fmt.Errorf("translating the pods' addresses: %w", err)
	}
	return os.WriteFile(forwardSetting, []byte("1"), 0o644)
}

// closeEgress undoes openEgress, once. Forwarding stays on when somebody else turned it on before.
func closeEgress(d layout.Dir) error {
	b, err := os.ReadFile(egressFile(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	name, forward, _ := strings.Cut(string(b), " ")
	if name != "" {
		if err := nft(context.Background(), fmt.Sprintf("table ip %[1]s\ndelete table ip %[1]s\n", name)); err != nil {
			return err
		}
	}
	if forward == "0" {
		if err := os.WriteFile(forwardSetting, []byte("0"), 0o644); err != nil {
			return err
		}
	}
	return os.Remove(egressFile(d))
}

// nft applies rules in one transaction.
func nft(ctx context.Context, rules string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// HostNameservers are the DNS servers of this host that pods could use too: not those on loopback.
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
