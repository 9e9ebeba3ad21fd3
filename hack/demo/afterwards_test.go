package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What the demo prints at its end works in an environment without any variable, also where folders have spaces in their names.
func TestAfterTheDemoKubectlIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder")
	d := &demo{root: filepath.Join(dir, "skein"), kubernetes: filepath.Join(dir, "kubernetes"), kubeconfig: filepath.Join(dir, "kubeconfig")}
	for file, text := range map[string]string{
		filepath.Join(d.kubernetes, "kubectl"): "command -v kubectl-skein\necho \"$KUBECONFIG $*\"\n", filepath.Join(d.root, "bin", "kubectl-skein"): "",
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-ec", d.afterwards())
	cmd.Env = []string{"PATH="}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, d.afterwards())
	}
	plugin := filepath.Join(d.root, "bin", "kubectl-skein")
	want := []string{plugin, d.kubeconfig + " skein list -n demo", plugin, d.kubeconfig + " skein chat -n demo --agent analyst", plugin, d.kubeconfig + " skein console -n demo"}
	if got := strings.Split(strings.TrimSpace(string(out)), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
