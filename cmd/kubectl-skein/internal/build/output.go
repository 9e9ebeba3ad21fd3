package build

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// header is the first line of each file that Write makes.
const header = "# Made by kubectl skein build. Change the sources, not this file.\n"

// Print writes the objects as one stream of YAML documents.
func (r *Result) Print(w io.Writer) error {
	for i, o := range r.Objects {
		data, err := yaml.Marshal(o.Fields)
		if err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
		if i > 0 {
			data = append([]byte("---\n"), data...)
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// Changes are what Write did.
type Changes struct{ Written, Removed, Same []string }

// Write writes one file for each object into a folder, and removes the files of objects that an earlier call has made and
// that are no more. It touches no file that it has not made.
func (r *Result) Write(dir string) (c Changes, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c, err
	}
	wanted := map[string][]byte{}
	for _, o := range r.Objects {
		name := strings.ToLower(o.Kind()) + "-" + o.Name() + ".yaml"
		if ns := o.Namespace(); ns != "" {
			name = ns + "-" + name
		}
		data, err := yaml.Marshal(o.Fields)
		if err != nil {
			return c, fmt.Errorf("%s: %w", o, err)
		}
		wanted[name] = append([]byte(header+"# From "+o.From+".\n"), data...)
	}
	for name := range wanted { // nothing is written when something is in the way
		if old, err := os.ReadFile(filepath.Join(dir, name)); err == nil && !bytes.HasPrefix(old, []byte(header)) {
			return c, fmt.Errorf("%s was not made by this command: move it away, or choose another folder", filepath.Join(dir, name))
		}
	}
	for _, name := range sortedNames(wanted) {
		path := filepath.Join(dir, name)
		old, err := os.ReadFile(path)
		if err == nil && bytes.Equal(old, wanted[name]) {
			c.Same = append(c.Same, name)
			continue
		}
		if err := replace(path, wanted[name]); err != nil {
			return c, err
		}
		c.Written = append(c.Written, name)
	}
	c.Removed, err = removeStale(dir, wanted)
	return c, err
}

func removeStale(dir string, wanted map[string][]byte) (removed []string, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if wanted[f.Name()] != nil || filepath.Ext(f.Name()) != ".yaml" || !f.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, f.Name())
		if old, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(old, []byte(header)) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
		removed = append(removed, f.Name())
	}
	return removed, nil
}

// replace writes a file so that a reader sees all of it or what was there before.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error is told already
	}
	return err
}

func sortedNames(m map[string][]byte) []string {
	fields := make(map[string]any, len(m))
	for name := range m {
		fields[name] = nil
	}
	return sortedKeys(fields)
}
