// Package image writes OCI image archives from static binaries, without a registry, a daemon or a base image.
package image

import (
	"archive/tar"
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

// Spec describes an image. It is a scratch image with /tmp, /etc/passwd and the given files.
type Spec struct {
	// Name is the reference, as in a pod's image field; see Normalize.
	Name string
	// Files are copied from the host, by their path in the image. They get mode 0755.
	Files map[string]string
	// Entrypoint is the program and its first arguments.
	Entrypoint []string
	// User is the id of the user under which it runs.
	User int
}

var nameRE = regexp.MustCompile(`^[a-z0-9]+(?:[._:/-]+[A-Za-z0-9_]+)*$`)

// Normalize completes a reference as the kubelet does: docker.io without a registry, latest without a tag.
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

// path returns the path of the blob in the archive.
func (d descriptor) path() string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

func digest(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

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
	blob := func(mediaType string, data []byte) (descriptor, error) {
		sum := sha256.Sum256(data)
		d := descriptor{MediaType: mediaType, Digest: digest(sum[:]), Size: int64(len(data))}
		return d, put(w, d.path(), 0o644, data)
	}
	const oci = "application/vnd.oci.image."
	ld, err := putLayer(s, oci+"layer.v1.tar", w)
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

// putLayer adds the one file system layer of an image. It reads the files twice instead of keeping them in memory,
// because the archive needs the layer's digest and size before the layer.
func putLayer(s Spec, mediaType string, w *tar.Writer) (descriptor, error) {
	sum, size := sha256.New(), counter(0)
	if err := writeLayer(s, io.MultiWriter(sum, &size)); err != nil {
		return descriptor{}, err
	}
	d := descriptor{MediaType: mediaType, Digest: digest(sum.Sum(nil)), Size: int64(size)}
	if err := w.WriteHeader(&tar.Header{Name: d.path(), Mode: 0o644, Size: d.Size}); err != nil {
		return d, err
	}
	again := sha256.New()
	if err := writeLayer(s, io.MultiWriter(again, w)); err != nil {
		return d, err
	}
	if digest(again.Sum(nil)) != d.Digest {
		return d, errors.New("a file changed while the image was written: try again")
	}
	return d, nil
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

func writeLayer(s Spec, to io.Writer) error {
	w := tar.NewWriter(to)
	for _, d := range []tar.Header{{Name: "tmp/", Mode: 0o1777}, {Name: "etc/", Mode: 0o755}} {
		d.Typeflag = tar.TypeDir
		if err := w.WriteHeader(&d); err != nil {
			return err
		}
	}
	passwd := "root:x:0:0:root:/:/\n"
	if s.User != 0 {
		passwd += fmt.Sprintf("app:x:%d:%d:app:/:/\n", s.User, s.User)
	}
	if err := put(w, "etc/passwd", 0o644, []byte(passwd)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) { // sorted, so that the same files make the same image
		if err := putFile(w, strings.TrimPrefix(path.Clean("/"+name), "/"), s.Files[name]); err != nil {
			return err
		}
	}
	return w.Close()
}

func putFile(w *tar.Writer, name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return err
	}
	if !i.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", from)
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: i.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

func put(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
