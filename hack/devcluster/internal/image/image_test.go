package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"app": "docker.io/library/app:latest", "app:1": "docker.io/library/app:1", "skein/manager:dev": "docker.io/skein/manager:dev",
		"skein.dev/manager:dev": "skein.dev/manager:dev", "localhost/a": "localhost/a:latest", "host:5000/a/b": "host:5000/a/b:latest",
	} {
		if got, err := Normalize(in); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "A", "a b", "a@sha256:0", "/a"} {
		if _, err := Normalize(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func read(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "prog")
	if err := os.WriteFile(bin, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := Spec{Name: "x:1", Files: map[string]string{"/bin/prog": bin, "/data": bin}, Entrypoint: []string{"/bin/prog", "run"}, User: 7}
	var first []byte
	for i := range 5 {
		to := filepath.Join(dir, "image.tar")
		if err := Write(spec, to); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = b
		} else if !bytes.Equal(b, first) {
			t.Fatal("the same files make another image")
		}
	}
	parts := read(t, first)
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(parts["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if n := index.Manifests[0].Annotations["io.containerd.image.name"]; n != "docker.io/library/x:1" {
		t.Errorf("it is named %q", n)
	}
	blob := func(d string) []byte { return parts["blobs/sha256/"+strings.TrimPrefix(d, "sha256:")] }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(blob(index.Manifests[0].Digest), &manifest); err != nil {
		t.Fatal(err)
	}
	if c := string(blob(manifest.Config.Digest)); !strings.Contains(c, `"Entrypoint":["/bin/prog","run"]`) || !strings.Contains(c, `"User":"7"`) {
		t.Errorf("its configuration is %s", c)
	}
	files := read(t, blob(manifest.Layers[0].Digest))
	if string(files["bin/prog"]) != "program" || string(files["data"]) != "program" || !strings.Contains(string(files["etc/passwd"]), "app:x:7:7") {
		t.Errorf("its files are %q", files)
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	err := Write(Spec{Name: "x", Files: map[string]string{"/a": filepath.Join(dir, "absent")}, Entrypoint: []string{"/a"}}, filepath.Join(dir, "image.tar"))
	if err == nil {
		t.Error("no error for a file that is not there")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
