// Package image writes OCI image archives from static binaries, without a registry, a daemon or a base image.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Spec says what an image holds. It is a scratch image: /tmp, /etc/passwd and the given files.
type Spec struct {
	// Name is the reference, as in a pod's image field; see Normalize.
	Name string
	// Files are copied from the host, by path in the image. They get mode 0755.
	Files map[string]string
	// Entrypoint is the program and its first arguments.
	Entrypoint []string
	// User is the number under which it runs.
	User int
}

var nameRE = regexp.MustCompile(`^[a-z0-9]+(?:[._:/-]+[A-Za-z0-9_]+)*$`)

// Normalize completes a reference as the kubelet does: docker.io where there is no registry, latest where there is no tag.
func Normalize(name string) (string, error) {
	if !nameRE.MatchString(name) || strings.Contains(name, "@") {
		return "", fmt.Errorf("the image name %q is not valid: write it like skein.dev/manager:dev", name)
	}
	first, rest, slash := strings.Cut(name, "/")
	switch {
	case !slash:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		name = "docker.io/" + first + "/" + rest
	}
	if !strings.Contains(path.Base(name), ":") {
		name += ":latest"
	}
	return name, nil
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type object = map[string]any

// Write writes the archive, an OCI image layout in a tar, to path.
func Write(s Spec, to string) (err error) {
	name, err := Normalize(s.Name)
	if err != nil {
		return err
	}
	if len(s.Entrypoint) == 0 {
		return errors.New("an image needs an entrypoint")
	}
	f, err := os.CreateTemp(path.Dir(to), ".image-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := write(s, name, f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}

func write(s Spec, name string, out io.Writer) error {
	w := tar.NewWriter(out)
	layer, err := layer(s)
	if err != nil {
		return err
	}
	blob := func(mediaType string, data []byte) (descriptor, error) {
		sum := sha256.Sum256(data)
		h := hex.EncodeToString(sum[:])
		return descriptor{MediaType: mediaType, Digest: "sha256:" + h, Size: int64(len(data))}, put(w, "blobs/sha256/"+h, 0o644, data)
	}
	const oci = "application/vnd.oci.image."
	ld, err := blob(oci+"layer.v1.tar", layer)
	if err != nil {
		return err
	}
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config": object{"Entrypoint": s.Entrypoint, "WorkingDir": "/", "User": fmt.Sprint(s.User), "Env": []string{"PATH=/"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{ld.Digest}},
	})
	if err != nil {
		return err
	}
	cd, err := blob(oci+"config.v1+json", config)
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(object{"schemaVersion": 2, "mediaType": oci + "manifest.v1+json", "config": cd, "layers": []descriptor{ld}})
	if err != nil {
		return err
	}
	md, err := blob(oci+"manifest.v1+json", manifest)
	if err != nil {
		return err
	}
	md.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
	index, err := json.Marshal(object{"schemaVersion": 2, "mediaType": oci + "index.v1+json", "manifests": []descriptor{md}})
	if err != nil {
		return err
	}
	if err := put(w, "index.json", 0o644, index); err != nil {
		return err
	}
	if err := put(w, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	return w.Close()
}

// layer is the one file system layer of an image.
func layer(s Spec) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, d := range []tar.Header{{Name: "tmp/", Mode: 0o1777}, {Name: "etc/", Mode: 0o755}} {
		d.Typeflag = tar.TypeDir
		if err := w.WriteHeader(&d); err != nil {
			return nil, err
		}
	}
	passwd := "root:x:0:0:root:/:/\n"
	if s.User != 0 {
		passwd += fmt.Sprintf("app:x:%d:%d:app:/:/\n", s.User, s.User)
	}
	if err := put(w, "etc/passwd", 0o644, []byte(passwd)); err != nil {
		return nil, err
	}
	for _, to := range slices.Sorted(maps.Keys(s.Files)) { // sorted: the same files make the same image
		data, err := os.ReadFile(s.Files[to])
		if err != nil {
			return nil, err
		}
		if err := put(w, strings.TrimPrefix(path.Clean("/"+to), "/"), 0o755, data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func put(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
