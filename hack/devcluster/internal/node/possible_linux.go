package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Possible returns why no node can run on this machine, for people, or nil when one can.
func Possible() error {
	if os.Geteuid() != 0 {
		return errors.New("a node needs root")
	}
	for _, c := range []struct {
		number uint
		name   string
	}{{unix.CAP_SYS_ADMIN, "SYS_ADMIN"}, {unix.CAP_NET_ADMIN, "NET_ADMIN"}, {unix.CAP_SYS_CHROOT, "SYS_CHROOT"}, {unix.CAP_MKNOD, "MKNOD"}} {
		if !hasCapability(c.number) {
			return fmt.Errorf("a node needs the capability %s, as in a virtual machine or a privileged container", c.name)
		}
	}
	if err := cgroupsUsable(); err != nil {
		return fmt.Errorf("a node needs cgroups: %w", err)
	}
	for _, p := range []string{"nft", "mount", "umount"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("a node needs the program %s", p)
		}
	}
	if out, err := exec.Command("nft", "list", "tables").CombinedOutput(); err != nil {
		return fmt.Errorf("a node needs nftables, and nft says: %s", out)
	}
	if _, err := os.Stat("/dev/kmsg"); err != nil {
		return errors.New("a node needs /dev/kmsg, from which the kubelet learns of processes killed for memory")
	}
	return nil
}
