package node

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// PIDs returns the host's pids of the node's running daemons, by name. initPID is the host's pid of its first
// process.
func PIDs(d layout.Dir, initPID int) map[string]int {
	inside := map[int]string{}
	for _, name := range Daemons {
		b, err := os.ReadFile(pidFile(d, name))
		if err != nil {
			continue
		}
		if pid, err := strconv.Atoi(string(b)); err == nil {
			inside[pid] = name
		}
	}
	out := map[string]int{}
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", initPID))
	if err != nil {
		return out
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return out
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if at, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err != nil || at != ns {
			continue
		}
		if name, ok := inside[innerPID(pid)]; ok {
			out[name] = pid
		}
	}
	return out
}

// innerPID returns the pid of a process inside its pid namespace.
func innerPID(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "NSpid:" {
			n, _ := strconv.Atoi(f[len(f)-1])
			return n
		}
	}
	return 0
}
