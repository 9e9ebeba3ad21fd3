package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// ociImage is what the tests look at of an OCI image.
type ociImage struct {
	Config struct {
		User       string
		Entrypoint []string
		Cmd        []string
		Env        []string
	} `json:"config"`
	Architecture string `json:"architecture"`
	// files of all layers, by path.
	files map[string]file
}

type file struct {
	mode    os.FileMode
	content []byte
}

type descriptor struct {
	Digest    string `json:"digest"`
	MediaType string `json:"mediaType"`
}

// readArchive reads an image out of an OCI archive.
func readArchive(path string) (*ociImage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	blobs, err := untar(f)
	if err != nil {
		return nil, err
	}
	blob := func(digest string) []byte { return blobs["blobs/"+strings.Replace(digest, ":", "/", 1)].content }

	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(blobs["index.json"].content, &index); err != nil || len(index.Manifests) != 1 {
		return nil, fmt.Errorf("the index has %d manifests: %w", len(index.Manifests), err)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(blob(index.Manifests[0].Digest), &manifest); err != nil {
		return nil, err
	}
	img := &ociImage{files: map[string]file{}}
	if err := json.Unmarshal(blob(manifest.Config.Digest), img); err != nil {
		return nil, err
	}
	for _, l := range manifest.Layers {
		var layer io.Reader = bytes.NewReader(blob(l.Digest))
		if strings.HasSuffix(l.MediaType, "gzip") {
			if layer, err = gzip.NewReader(layer); err != nil {
				return nil, err
			}
		}
		files, err := untar(layer)
		if err != nil {
			return nil, err
		}
		for name, f := range files {
			img.files[name] = f
		}
	}
	return img, nil
}

// untar gives the regular files of a tar.
func untar(r io.Reader) (map[string]file, error) {
	files := map[string]file{}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		files[strings.TrimPrefix(filepath.Clean(h.Name), "/")] = file{mode: h.FileInfo().Mode(), content: b}
	}
}

// unpack writes the image's files below a folder.
func (i *ociImage) unpack(dir string) error {
	for name, f := range i.files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, f.content, f.mode); err != nil {
			return err
		}
	}
	return nil
}
