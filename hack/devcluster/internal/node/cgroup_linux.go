package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

const cgroupRoot = "/sys/fs/cgroup"

// wantedControllers are the controllers that the kubelet needs below its cgroup root.
var wantedControllers = []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"}

// cgroupV2 reports whether this host has only the unified hierarchy.
func cgroupV2() bool {
	var s unix.Statfs_t
	return unix.Statfs(cgroupRoot, &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC
}

// hierarchies returns the mount points of the host's cgroup hierarchies: one with version 2, one for each controller
// with version 1.
func hierarchies() ([]string, error) {
	if cgroupV2() {
		return []string{cgroupRoot}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		d := filepath.Join(cgroupRoot, e.Name())
		var s unix.Statfs_t
		// Links such as cpu,cpuacct lead to a hierarchy that is listed under its own name.
		if e.IsDir() && unix.Statfs(d, &s) == nil && (s.Type == unix.CGROUP_SUPER_MAGIC || s.Type == unix.CGROUP2_SUPER_MAGIC) {
			dirs = append(dirs, d)
		}
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("no cgroups are mounted in %s", cgroupRoot)
	}
	return dirs, nil
}

// cgroupsUsable returns why the kubelet cannot manage cgroups here, or nil.
func cgroupsUsable() error {
	if !cgroupV2() {
		for _, c := range []string{"cpu", "memory", "pids"} {
			var s unix.Statfs_t
			if unix.Statfs(filepath.Join(cgroupRoot, c), &s) != nil || s.Type != unix.CGROUP_SUPER_MAGIC {
				return fmt.Errorf("the cgroup controller %s is not mounted", c)
			}
		}
		return unix.Access(filepath.Join(cgroupRoot, "memory"), unix.W_OK)
	}
	b, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return err
	}
	have := strings.Fields(string(b))
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(have, c) {
			return fmt.Errorf("the cgroup controller %s is not available", c)
		}
	}
	// The real root, which has no type, can enable controllers for its children, and so can a root without processes.
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.type")); err != nil {
		return nil
	}
	off, err := controllersOff()
	if err != nil {
		return err
	}
	procs, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.procs"))
	if err != nil {
		return err
	}
	if len(off) > 0 && len(procs) > 0 {
		return fmt.Errorf("the cgroup root has processes in it, as in a container, and so cannot hand down the controllers %s", strings.Join(off, ", "))
	}
	return nil
}

// makeCgroups creates the parent of everything that the kubelet will create.
func makeCgroups(d layout.Dir, name string) error {
	if err := removeCgroups(d, name); err != nil {
		return err
	}
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	if cgroupV2() {
		if err := enableControllers(d); err != nil {
			return err
		}
	}
	for _, h := range dirs {
		if err := os.Mkdir(filepath.Join(h, name), 0o755); err != nil {
			return fmt.Errorf("making the node's cgroup: %w", err)
		}
		// With version 1, no process may enter a cpuset before it has processors and memory nodes.
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			b, err := os.ReadFile(filepath.Join(h, f))
			if errors.Is(err, fs.ErrNotExist) || cgroupV2() {
				continue
			}
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(h, name, f), b, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// controllersOff returns the controllers that the kubelet needs and that the version 2 root does not enable for its
// children yet.
func controllersOff() ([]string, error) {
	have, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	on, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"))
	if err != nil {
		return nil, err
	}
	var off []string
	for _, c := range wantedControllers {
		if slices.Contains(strings.Fields(string(have)), c) && !slices.Contains(strings.Fields(string(on)), c) {
			off = append(off, c)
		}
	}
	return off, nil
}

// enableControllers makes the version 2 root enable what the kubelet needs, and records what it changed.
func enableControllers(d layout.Dir) error {
	off, err := controllersOff()
	if err != nil || len(off) == 0 {
		return err
	}
	if err := os.WriteFile(controllersFile(d), []byte(strings.Join(off, "\n")), 0o600); err != nil {
		return err
	}
	for _, c := range off {
		if err := os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
			return fmt.Errorf("handing down the cgroup controller %s: %w", c, err)
		}
	}
	return nil
}

// disableControllers undoes enableControllers. A controller that others use by now stays enabled.
func disableControllers(d layout.Dir) {
	b, err := os.ReadFile(controllersFile(d))
	if err != nil {
		return
	}
	for _, c := range strings.Fields(string(b)) {
		_ = os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte("-"+c), 0o644)
	}
	_ = os.Remove(controllersFile(d))
}

func controllersFile(d layout.Dir) string { return filepath.Join(string(d), "cgroup-controllers") }

// removeCgroups removes the parent and everything below it, deepest first. It kills what still runs there.
func removeCgroups(d layout.Dir, name string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range dirs {
		root := filepath.Join(h, name)
		for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			err := removeTree(root)
			if err == nil {
				break
			}
			if time.Since(start) > 10*time.Second {
				return fmt.Errorf("removing the node's cgroups: %w", err)
			}
		}
	}
	disableControllers(d)
	return nil
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	err = os.Remove(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, syscall.EBUSY) {
		killAll(dir)
	}
	return err
}

func killAll(dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for _, f := range strings.Fields(string(b)) {
		var pid int
		if _, err := fmt.Sscan(f, &pid); err == nil && pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
