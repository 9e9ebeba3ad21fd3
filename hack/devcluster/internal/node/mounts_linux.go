package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// kernelSettings are settings of the whole machine that the kubelet would change. In the node's mount namespace,
// files with the values that it wants are mounted over them, so that it leaves the machine's settings alone. None of
// them matters to pods.
var kernelSettings = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// setUpMounts turns a copy of the host's mounts into the node's file system: the host's programs and devices, with
// separate /proc, /sys, /run and /var. It runs as the first process of new pid, mount and network namespaces.
func setUpMounts(d layout.Dir, cfg layout.Config) error {
	// This comes first: later mounts do not reach the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separating the mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := mountSys(); err != nil {
		return err
	}
	if err := mountRunAndVar(d, cfg); err != nil {
		return err
	}
	if err := coverKernelSettings(); err != nil {
		return err
	}
	// The node's mounts are shared among themselves, as on a host with systemd, because mount propagation into pods
	// depends on it.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the node's mounts: %w", err)
	}
	return nil
}

// mountSys gives the node a /sys with its own network interfaces and the host's cgroups.
func mountSys() error {
	cgroups, err := unix.OpenTree(unix.AT_FDCWD, cgroupRoot, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("copying the cgroup mounts: %w", err)
	}
	defer unix.Close(cgroups)
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	if err := unix.MoveMount(cgroups, "", unix.AT_FDCWD, cgroupRoot, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting the cgroups: %w", err)
	}
	return nil
}

// mountRunAndVar mounts an empty file system on /run and a folder of the run directory on /var. Host paths below them
// that the node needs stay where they are.
func mountRunAndVar(d layout.Dir, cfg layout.Config) error {
	var keep []kept
	for _, p := range []string{string(d), cfg.NodeBin, cfg.DNSBin, cfg.GVisorBin} {
		if p == "" { // empty in a cluster without gVisor
			continue
		}
		k, err := keepPath(p)
		if err != nil {
			return err
		}
		if k != nil {
			keep = append(keep, *k)
		}
	}
	root := filepath.Join(d.Node(), "var")
	for _, dir := range []string{"lib/kubelet", "log", "tmp", "cache"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{"run": "/run", "lock": "/run/lock"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if err := unix.Mount(root, "/var", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting /var: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	for _, dir := range []string{"/run/lock", "/run/netns", "/run/node"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, k := range keep {
		if err := k.restore(); err != nil {
			return err
		}
	}
	return nil
}

// kept is a folder that must stay reachable when a file system is mounted above it.
type kept struct {
	path string
	tree int
}

func keepPath(p string) (*kept, error) {
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(real, "/run/") && !strings.HasPrefix(real, "/var/") {
		return nil, nil
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, real, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("keeping %s: %w", real, err)
	}
	return &kept{real, fd}, nil
}

func (k kept) restore() error {
	defer unix.Close(k.tree)
	if err := os.MkdirAll(k.path, 0o755); err != nil {
		return err
	}
	if err := unix.MoveMount(k.tree, "", unix.AT_FDCWD, k.path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("keeping %s: %w", k.path, err)
	}
	return nil
}

func coverKernelSettings() error {
	const dir = "/run/node/sysctl"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, value := range kernelSettings {
		over := "/proc/sys/" + name
		if _, err := os.Stat(over); err != nil {
			continue // this kernel has no such setting
		}
		cover := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(cover, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(cover, over, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("covering %s: %w", over, err)
		}
	}
	return nil
}

// snapshotter returns the snapshotter for containerd: overlayfs if the kernel can mount it on the run directory's
// file system, else plain copies, as inside containers.
func snapshotter(d layout.Dir) string {
	dir := filepath.Join(d.Node(), "overlay-test")
	defer os.RemoveAll(dir)
	for _, sub := range []string{"lower", "upper", "work", "merged"} {
		if os.MkdirAll(filepath.Join(dir, sub), 0o700) != nil {
			return "native"
		}
	}
	at := func(sub string) string { return filepath.Join(dir, sub) }
	opts := "lowerdir=" + at("lower") + ",upperdir=" + at("upper") + ",workdir=" + at("work")
	if unix.Mount("overlay", at("merged"), "overlay", 0, opts) != nil {
		return "native"
	}
	if unix.Unmount(at("merged"), 0) != nil {
		return "native"
	}
	return "overlayfs"
}
