package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
)

// writeFile writes a whole file or none. A file that exists keeps its permissions, and a new one has those that the umask leaves. Only its
// owner can read a private file. A link stays. A device or a pipe stays too, and gets the bytes as they come.
func writeFile(name string, private bool, write func(io.Writer) error) (err error) {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	info, err := os.Stat(name)
	exists := err == nil
	switch {
	case exists && info.IsDir():
		return fmt.Errorf("%s is a folder: name a file", name)
	case exists && !info.Mode().IsRegular():
		return writeThrough(name, write)
	}
	mode := os.FileMode(0o666)
	if private {
		mode = 0o600
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(name), ".skein-"+uuid.NewString()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		if failed := new(fs.PathError); errors.As(err, &failed) {
			failed.Path = name // the other name says nothing to a person
		}
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if exists && !private {
		err = f.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = write(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// writeThrough writes to what is not a regular file, such as /dev/stdout.
func writeThrough(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// copyOf returns what writes all that a reader has.
func copyOf(in io.Reader) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	}
}
