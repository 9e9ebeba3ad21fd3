package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quiet is how long nothing must change before a change is told: editors and npm write several files.
const quiet = 150 * time.Millisecond

// Watch calls changed once it watches, and whenever files of a folder have changed, until the context ends. It leaves out the folder except, in
// which results may be, and what is within packages.
func Watch(ctx context.Context, dir, except string, changed func()) error {
	dir, err := projectDir(dir)
	if err != nil {
		return err
	}
	w := &watcher{except: except}
	if except != "" {
		if w.except, err = filepath.Abs(except); err != nil {
			return err
		}
		if real, err := filepath.EvalSymlinks(w.except); err == nil {
			w.except = real
		}
	}
	if w.Watcher, err = fsnotify.NewWatcher(); err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // nothing is written
	if err := w.add(dir); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	changed()
	timer := time.NewTimer(quiet)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			timer.Reset(quiet) // something has changed
		case e := <-w.Events:
			if w.ignored(e.Name) || e.Op == fsnotify.Chmod {
				continue
			}
			if e.Has(fsnotify.Create) {
				_ = w.add(e.Name) // it may be gone again, or be a file
			}
			timer.Reset(quiet)
		case <-timer.C:
			changed()
		}
	}
}

type watcher struct {
	*fsnotify.Watcher
	except string
}

// add watches a folder and those below it. Of node_modules it watches only what packages there are.
func (w *watcher) add(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it was removed meanwhile
			}
			return err
		}
		if !d.IsDir() {
			return nil
		}
		if path != dir && w.ignored(path) || filepath.Base(filepath.Dir(path)) == "node_modules" {
			return fs.SkipDir
		}
		return w.Add(path)
	})
}

func (w *watcher) ignored(path string) bool {
	base := filepath.Base(path)
	if base == ".package-lock.json" { // npm writes it at the end of what it does
		return false
	}
	if strings.HasPrefix(base, ".") || strings.HasSuffix(base, "~") || base == "4913" { // what editors write
		return true
	}
	return w.except != "" && (path == w.except || strings.HasPrefix(path, w.except+string(filepath.Separator)))
}
