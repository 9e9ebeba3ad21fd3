package cli

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// enoughMemory is from how many available bytes on the control plane trades memory for processor time.
const enoughMemory = 8 << 30

// collectLessGarbage makes the control plane collect garbage less often where memory is plentiful: an API server under
// load spends up to a fifth of its processor time on garbage. The settings of the environment take precedence.
func collectLessGarbage() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return // not Linux
	}
	if available := availableMemory(string(b)); available > enoughMemory {
		debug.SetGCPercent(300)
		debug.SetMemoryLimit(available / 4) // several clusters may run beside each other
	}
}

// availableMemory returns the bytes that programs can still use, from the text of /proc/meminfo, or 0 if it does not say.
func availableMemory(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}
