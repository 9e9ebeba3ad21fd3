package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Without its pid nothing would stop the demo's manager any more.
func TestCleanLeavesTheFilesOfARunningManager(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Makefile", "hack/clean.sh"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, name), string(text), 0o755)
	}
	d := &demo{state: filepath.Join(root, "build", "demo-state")}
	clean := func() (output string, failed bool) {
		t.Helper()
		cmd := exec.Command("make", "clean")
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), err != nil
	}

	manager := exec.Command("sh", "-c", "read line", "manager", "--data-dir="+d.data())
	end, err := manager.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Process.Kill() })
	pid := strconv.Itoa(manager.Process.Pid)
	write(t, d.managerPID(), pid, 0o600)
	write(t, filepath.Join(root, "bin", "manager"), "", 0o755)
	if !d.isManager(manager.Process.Pid) {
		t.Fatal("the demo does not know its manager")
	}
	if out, failed := clean(); !failed || !strings.Contains(out, pid) || !strings.Contains(out, "make demo-down") {
		t.Errorf("failed: %t, output: %s", failed, out)
	}
	for _, name := range []string{d.managerPID(), filepath.Join(root, "bin", "manager")} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}

	_ = end.Close()
	_ = manager.Wait()
	for _, text := range []string{pid, "", "nonsense", strconv.Itoa(os.Getpid())} { // what another process has by now is no manager
		write(t, d.managerPID(), text, 0o600)
		if out, failed := clean(); failed {
			t.Errorf("%q: %s", text, out)
		}
		for _, name := range []string{"bin", "build"} {
			if _, err := os.Stat(filepath.Join(root, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: %s: %v", text, name, err)
			}
		}
	}
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
