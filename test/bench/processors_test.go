package bench

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/gomega"

	. "github.com/onsi/ginkgo/v2"
)

// processorTimes says how long processors have worked for the processes of a cluster, by the name of their program.
// Processes that have ended count for the one that waited for them.
type processorTimes map[string]time.Duration

// tick is the unit of /proc/PID/stat.
const tick = 10 * time.Millisecond

// running is what /proc says about a process.
type running struct {
	parent int
	name   string
	used   time.Duration
}

// processes reads those that there are, by id.
func processes() map[int]running {
	GinkgoHelper()
	all := map[int]running{}
	entries, err := os.ReadDir("/proc")
	Expect(err).NotTo(HaveOccurred())
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name stands in parentheses and may contain anything. proc_pid_stat(5) counts the fields from 1.
		open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
		fields := strings.Fields(string(text[end+1:]))
		p := running{name: string(text[open+1 : end])}
		p.parent, err = strconv.Atoi(fields[4-3])
		Expect(err).NotTo(HaveOccurred())
		for _, i := range []int{14, 15, 16, 17} { // utime, stime, cutime, cstime
			n, err := strconv.ParseInt(fields[i-3], 10, 64)
			Expect(err).NotTo(HaveOccurred())
			p.used += time.Duration(n) * tick
		}
		all[id] = p
	}
	return all
}

// timesOf reads the times of the cluster that a process belongs to: of all descendants of its oldest ancestor but init.
func timesOf(pid int) processorTimes {
	GinkgoHelper()
	all := processes()
	root := pid
	for all[root].parent > 1 {
		root = all[root].parent
	}
	out := processorTimes{}
	for id, p := range all {
		for up := id; up > 1; up = all[up].parent {
			if up == root {
				out[p.name] += p.used
				break
			}
		}
	}
	return out
}

// timesWith reads the times of the programs that were started with a text in their arguments, for example with the folder of a
// cluster: its control plane, and the managers beside it.
func timesWith(text string) processorTimes {
	GinkgoHelper()
	out := processorTimes{}
	for id, p := range processes() {
		if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id)); err == nil && strings.Contains(string(args), text) {
			out[p.name] += p.used
		}
	}
	return out
}

// since returns what was used after an earlier reading, for each of n units, largest first.
func (t processorTimes) since(before processorTimes, n int) string {
	var sum time.Duration
	each := map[string]time.Duration{}
	for name, used := range t {
		if d := used - before[name]; d > 0 {
			each[name] = d / time.Duration(n)
			sum += each[name]
		}
	}
	names := slices.SortedFunc(maps.Keys(each), func(a, b string) int { return cmp.Compare(each[b], each[a]) })
	parts := []string{fmt.Sprintf("%s in all", sum.Round(10*time.Microsecond))}
	for _, name := range names[:min(len(names), 5)] {
		parts = append(parts, fmt.Sprintf("%s %s", name, each[name].Round(10*time.Microsecond)))
	}
	return strings.Join(parts, ", ")
}

// residentSet is what a process has in memory, in MiB.
func residentSet(id int) float64 {
	GinkgoHelper()
	return memoryOf(id, "VmRSS:")
}

// largestSet is the most that a process has had in memory, in MiB.
func largestSet(id int) float64 {
	GinkgoHelper()
	return memoryOf(id, "VmHWM:")
}

// memoryOf reads a line of /proc/PID/status, in MiB.
func memoryOf(id int, key string) float64 {
	GinkgoHelper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == key {
			kib, err := strconv.ParseFloat(f[1], 64)
			Expect(err).NotTo(HaveOccurred())
			return kib / 1024
		}
	}
	Fail("the process has no " + key)
	return 0
}
