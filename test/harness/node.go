package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Kubelet gives the process of the node's kubelet, so that a test can take the node away from its cluster.
func (c *Cluster) Kubelet() (int, error) {
	config := "--config=" + filepath.Join(filepath.Dir(c.Kubeconfig), "node", "kubelet.yaml")
	pids, err := processes(func(dir string) bool {
		args := commandLine(dir)
		return len(args) > 1 && args[0] == "kubelet" && args[1] == config
	})
	if err != nil {
		return 0, err
	}
	if len(pids) != 1 {
		return 0, fmt.Errorf("%d processes are the kubelet of %s", len(pids), c.Name)
	}
	return pids[0], nil
}

// PodProcess gives the process of a pod whose command line begins with these words; of several the first: a child
// has its parent's command line until it runs a program of its own.
func (c *Cluster) PodProcess(uid types.UID, args ...string) (int, error) {
	pids, err := podProcesses(uid, args)
	if err != nil {
		return 0, err
	}
	if len(pids) == 0 {
		return 0, fmt.Errorf("no process of pod %s is %q", uid, args)
	}
	return slices.Min(pids), nil
}

func podProcesses(uid types.UID, args []string) ([]int, error) {
	return processes(func(dir string) bool {
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !bytes.Contains(groups, []byte("pod"+string(uid)+"/")) {
			return false
		}
		got := commandLine(dir)
		return len(got) >= len(args) && strings.Join(got[:len(args)], "\x00") == strings.Join(args, "\x00")
	})
}

func commandLine(dir string) []string {
	raw, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return nil // it has ended
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
}

// processes gives the ids of those whose folder in /proc is wanted.
func processes(want func(dir string) bool) ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		if !want(dir) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
