package harness

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Descriptors counts the descriptors that the manager has open.
func (m *Manager) Descriptors() (int, error) {
	open, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(m.PID()), "fd"))
	return len(open), err
}

// Metric reads a metric without labels of the manager, which serves its metrics at an address.
func (m *Manager) Metric(ctx context.Context, address, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", address, name)
}

// Inheritors returns the command lines of the processes that have a variable in their environment, written NAME=VALUE.
func Inheritors(variable string) (commands []string, err error) {
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended, or belongs to another process
		}
		for one := range bytes.SplitSeq(text, []byte{0}) {
			if string(one) == variable {
				if line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline")); err == nil && len(line) > 0 {
					commands = append(commands, string(bytes.TrimSpace(bytes.ReplaceAll(line, []byte{0}, []byte(" ")))))
				}
				break
			}
		}
	}
	return commands, nil
}
