package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// archive writes an archive with files of these names and modes.
func archive(t *testing.T, name string, files map[string]int64) string {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	for file, mode := range files {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: mode, Size: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var whole = map[string]int64{"kubectl-skein": 0o755, "LICENSE": 0o644}

func TestManifest(t *testing.T) {
	linux := archive(t, "kubectl-skein_linux_amd64.tar.gz", whole)
	windows := archive(t, "kubectl-skein_windows_arm64.tar.gz", map[string]int64{"./kubectl-skein.exe": 0o755, "./LICENSE": 0o644})
	var out bytes.Buffer
	if err := run(&out, "v0.1.0-rc.1", "https://downloads.example/v0.1.0/", []string{windows, linux}); err != nil {
		t.Fatal(err)
	}
	var p plugin
	if err := yaml.UnmarshalStrict(out.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	// What krew's own validation asks for.
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" || p.Metadata.Name != "skein" || p.Spec.Version != "v0.1.0-rc.1" {
		t.Errorf("a manifest of %+v", p)
	}
	if n := len(p.Spec.ShortDescription); n == 0 || n > 50 || strings.HasSuffix(p.Spec.ShortDescription, ".") || strings.Contains(p.Spec.ShortDescription, "\n") {
		t.Errorf("a short description of %d characters: %s", n, p.Spec.ShortDescription)
	}
	for _, line := range strings.Split(p.Spec.Description+p.Spec.Caveats, "\n") {
		if len(line) > 80 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	if len(p.Spec.Platforms) != 2 {
		t.Fatalf("%d platforms", len(p.Spec.Platforms))
	}
	for i, want := range []struct{ path, os, arch, bin string }{{linux, "linux", "amd64", "kubectl-skein"}, {windows, "windows", "arm64", "kubectl-skein.exe"}} {
		got := p.Spec.Platforms[i]
		data, err := os.ReadFile(want.path)
		if err != nil {
			t.Fatal(err)
		}
		if got.SHA256 != fmt.Sprintf("%x", sha256.Sum256(data)) {
			t.Errorf("the sum of %s is %s", want.path, got.SHA256)
		}
		if got.URI != "https://downloads.example/v0.1.0/"+filepath.Base(want.path) || got.Bin != want.bin || got.Files[0].From != want.bin || got.Files[1].From != licence ||
			got.Selector.MatchLabels["os"] != want.os || got.Selector.MatchLabels["arch"] != want.arch {
			t.Errorf("a platform of %+v", got)
		}
	}
}

// TestKrewTakesIt shows the manifest to krew's own validation, which its index of plugins runs, and shows it what it must refuse.
func TestKrewTakesIt(t *testing.T) {
	install := exec.Command(filepath.Join("..", "tool.sh"), "validate-krew-manifest")
	install.Stderr = os.Stderr
	program, err := install.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	paths := []string{archive(t, "kubectl-skein_linux_amd64.tar.gz", whole), archive(t, "kubectl-skein_darwin_arm64.tar.gz", whole),
		archive(t, "kubectl-skein_windows_amd64.tar.gz", map[string]int64{"kubectl-skein.exe": 0o755, "LICENSE": 0o644})}
	if err := run(&out, "v0.1.0", "https://downloads.example/v0.1.0", paths); err != nil {
		t.Fatal(err)
	}
	validate := func(manifest string) (string, error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "skein.yaml")
		if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		// Without an installation, which would fetch the archives.
		said, err := exec.Command(strings.TrimSpace(string(program)), "-manifest", file, "-skip-install").CombinedOutput()
		return string(said), err
	}
	if said, err := validate(out.String()); err != nil {
		t.Errorf("krew refuses it: %v: %s", err, said)
	}
	for from, to := range map[string]string{
		"version: v0.1.0": "version: 0.1.0", "name: skein": "name: Skein", "kind: Plugin": "kind: Program", "bin: kubectl-skein\n": "", "os: linux": "os: amiga",
	} {
		wrong := strings.Replace(out.String(), from, to, 1)
		if wrong == out.String() {
			t.Errorf("the manifest has no %q", from)
		}
		if said, err := validate(wrong); err == nil {
			t.Errorf("krew takes %q: %s", to, said)
		}
	}
}

func TestWrong(t *testing.T) {
	good := archive(t, "kubectl-skein_linux_amd64.tar.gz", whole)
	for _, c := range []struct {
		version, base string
		paths         []string
		says          string
	}{
		{"0.1.0", "https://x.example", []string{good}, "a version such as v0.1.0"},
		{"v0.1", "https://x.example", []string{good}, "a version such as v0.1.0"},
		{"v0.1.0", "http://x.example", []string{good}, "begins with https://"},
		{"v0.1.0", "", []string{good}, "begins with https://"},
		{"v0.1.0", "https://x.example", nil, "name the archives"},
		{"v0.1.0", "https://x.example", []string{good, good}, "another archive for its platform"},
		{"v0.1.0", "https://x.example", []string{filepath.Join(t.TempDir(), "kubectl-skein_linux_amd64.tar.gz")}, "no such file"},
		{"v0.1.0", "https://x.example", []string{archive(t, "kubectl-skein.tar.gz", whole)}, "kubectl-skein_OS_ARCH.tar.gz"},
		{"v0.1.0", "https://x.example", []string{archive(t, "kubectl-skein_linux_arm64.tar.gz", map[string]int64{"kubectl-skein": 0o755})}, "no LICENSE"},
		{"v0.1.0", "https://x.example", []string{archive(t, "kubectl-skein_linux_arm64.tar.gz", map[string]int64{"kubectl-skein": 0o644})}, "cannot be executed"},
	} {
		var out bytes.Buffer
		err := run(&out, c.version, c.base, c.paths)
		if err == nil || !strings.Contains(err.Error(), c.says) || out.Len() > 0 {
			t.Errorf("%s %s %v: %v, not %q", c.version, c.base, c.paths, err, c.says)
		}
	}
}
