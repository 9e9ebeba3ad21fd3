package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cache is the folder of built artifacts, with a sub-folder for each, named <artifact>-<key>. A folder with such a
// name is complete, because builds use a name that starts with ".build-".
type cache struct{ dir string }

// stamp is a file that is touched at each use of an artifact. prune uses its time.
const stamp = ".used"

func openCache() (*cache, error) {
	base := os.Getenv("SKEIN_CACHE")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("no home folder for the cache, set SKEIN_CACHE: %w", err)
		}
		base = filepath.Join(home, ".cache", "skein")
	}
	dir, err := filepath.Abs(filepath.Join(base, "devcluster"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the cache folder cannot be made, set SKEIN_CACHE to one that can: %w", err)
	}
	return &cache{dir: dir}, nil
}

func (c *cache) path(name, key string) string { return filepath.Join(c.dir, name+"-"+key) }

// has reports whether an artifact exists, and marks it as used.
func (c *cache) has(name, key string) bool {
	if _, err := os.Stat(c.path(name, key)); err != nil {
		return false
	}
	c.touch(c.path(name, key))
	return true
}

func (c *cache) touch(dir string) {
	now := time.Now()
	// A read-only cache still works, so ignore a failure here.
	if os.Chtimes(filepath.Join(dir, stamp), now, now) != nil {
		_ = os.WriteFile(filepath.Join(dir, stamp), nil, 0o644)
	}
}

// versions returns an artifact's folders, the last used first.
func (c *cache) versions(name string) []string {
	dirs, _ := filepath.Glob(filepath.Join(c.dir, name+"-*"))
	slices.SortFunc(dirs, func(a, b string) int { return used(b).Compare(used(a)) })
	return dirs
}

// used returns when an artifact's folder was last used.
func used(dir string) time.Time {
	i, err := os.Stat(filepath.Join(dir, stamp))
	if err != nil {
		return time.Time{}
	}
	return i.ModTime()
}

// newest returns the folder of the last used version of any of some artifacts, or "".
func (c *cache) newest(names ...string) string {
	var dirs []string
	for _, name := range names {
		dirs = append(dirs, c.versions(name)...)
	}
	if len(dirs) == 0 {
		return ""
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return used(a).Compare(used(b)) })
}

// prune removes what interrupted builds left, and old versions: those beyond the last four that were not used for a
// day. The caller holds the lock.
func (c *cache) prune() {
	left, _ := filepath.Glob(filepath.Join(c.dir, ".build-*"))
	for _, name := range []string{controlPlane.name, withNode.name, nodeRuntime.name, clusterDNS.name, gvisor.name} {
		for i, d := range c.versions(name) {
			s, err := os.Stat(filepath.Join(d, stamp))
			if i >= 4 && (err != nil || time.Since(s.ModTime()) > 24*time.Hour) {
				left = append(left, d)
			}
		}
	}
	for _, d := range left {
		_ = os.RemoveAll(d)
	}
}

// lock keeps two builds from running at the same time, and prints which process it waits for. The kernel releases it
// with the process.
func (c *cache) lock(ctx context.Context, out io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	start, said := time.Now(), time.Time{}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		if time.Since(said) > beat {
			said = time.Now()
			holder, _ := os.ReadFile(f.Name())
			fmt.Fprintf(out, "devcluster: waiting for another build (pid %s), %.0f s\n", strings.TrimSpace(string(holder)), time.Since(start).Seconds())
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	_ = f.Truncate(0)
	_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	return func() { f.Close() }, nil
}
