package harness

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// EarlierCommit is the commit on main whose manager runs beside the present one, on one database. It is the release before, in a
// repository that has no releases yet: the first commit that says which schemas it can use. Move it forward when a migration raises
// schema_reader.minimum, or an older version of the sandbox protocol is given up, and never otherwise
// (docs/adr/0053-neighbouring-versions.md).
const EarlierCommit = "dad75a3260e1d39b8d15c99a45633ac2311169d5"

// ErrNoHistory means that the checkout does not have the commit to build the earlier version from.
var ErrNoHistory = errors.New("two versions cannot run side by side without the history of the repository")

// BuildEarlier returns a folder with the programs manager and sandbox of EarlierCommit. It builds them from the history of the
// repository, once for all clones: they are kept in the folder that SKEIN_CACHE names, until none has used them for keepUnused. It
// fails with ErrNoHistory where there is no such commit.
func BuildEarlier(ctx context.Context) (dir string, err error) {
	if _, err := run(ctx, Root(), "git", "cat-file", "-e", EarlierCommit+"^{commit}"); err != nil {
		return "", fmt.Errorf("%w: commit %s is missing: in a shallow clone run `git fetch --unshallow`, and in CI check out with the whole history (fetch-depth: 0): %w",
			ErrNoHistory, EarlierCommit, err)
	}
	// What else the programs depend on is a part of the name.
	name := fmt.Sprintf("%s-%s-%s-%x", EarlierCommit, runtime.Version(), runtime.GOARCH, sha256.Sum256([]byte(os.Getenv("GOFLAGS"))))
	kept := filepath.Join(cache(), "earlier", name)
	if err := makeOnce(kept, func(bin string) error { return buildEarlier(ctx, bin) }); err != nil {
		return "", fmt.Errorf("build the earlier version: %w", err)
	}
	if err := prune(kept, time.Now()); err != nil {
		return "", fmt.Errorf("remove earlier versions that are not used any more: %w", err)
	}
	// Beside links programs, which only works within one file system, so the clone has a copy.
	dir = filepath.Join(Root(), "build", "earlier", name)
	if err := makeOnce(dir, func(bin string) error { return os.CopyFS(bin, os.DirFS(kept)) }); err != nil {
		return "", err
	}
	return dir, prune(dir, time.Now())
}

// buildEarlier builds the programs of EarlierCommit into a folder. Its flags are those of `make build`, so that what the two versions
// share is in the cache of the Go tools.
func buildEarlier(ctx context.Context, bin string) (err error) {
	temporary, err := os.MkdirTemp("", "skein-earlier-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	source, archive := filepath.Join(temporary, "source"), filepath.Join(temporary, "source.tar")
	if err := os.Mkdir(source, 0o755); err != nil {
		return err
	}
	for _, step := range [][]string{
		{Root(), "git", "archive", "--output=" + archive, EarlierCommit},
		{source, "tar", "-xf", archive},
		{source, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", bin + string(filepath.Separator), "./cmd/manager", "./cmd/sandbox"},
	} {
		if _, err := run(ctx, step[0], step[1], step[2:]...); err != nil {
			return err
		}
	}
	return nil
}

// cache returns the folder of what clones share, as the scripts in hack do.
func cache() string {
	if dir := os.Getenv("SKEIN_CACHE"); dir != "" {
		return dir
	}
	return filepath.Join(cmp.Or(os.Getenv("HOME"), "/tmp"), ".cache", "skein")
}

// makeOnce has a folder made unless it is there. It appears whole or not at all, and others may make it at the same time.
func makeOnce(dir string, fill func(dir string) error) (err error) {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "making-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	if err := fill(temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			return err
		}
	}
	return nil
}

// keepUnused is how long an unused folder stays. Go's build cache keeps entries as long.
const keepUnused = 5 * 24 * time.Hour

// prune notes that used is in use, and removes the folders beside it that were last used more than keepUnused ago, also what
// interrupted runs left there. Other clones may use other versions, so what was used since then stays. Several may prune at once.
func prune(used string, now time.Time) error {
	if err := os.Chtimes(used, now, now); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Dir(used))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // another process removed it
		}
		if err != nil {
			errs = append(errs, err)
		} else if info.IsDir() && now.Sub(info.ModTime()) > keepUnused {
			errs = append(errs, removeWhole(filepath.Join(filepath.Dir(used), e.Name())))
		}
	}
	return errors.Join(errs...)
}

// removeWhole removes a folder that others may remove at the same time. It moves the folder away first, so that an interrupt leaves
// nothing under its name that lacks a part.
func removeWhole(dir string) (err error) {
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "making-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if err := os.Rename(dir, filepath.Join(temporary, "old")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Beside puts a manager beside a sandbox program, which it then uses, and returns the manager's path. remove removes both.
func Beside(manager, sandbox string) (program string, remove func() error, err error) {
	dir, err := os.MkdirTemp(filepath.Join(Root(), "build", "earlier"), "mixed-")
	if err != nil {
		return "", nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	program = filepath.Join(dir, "manager")
	if err := errors.Join(os.Link(manager, program), os.Link(sandbox, filepath.Join(dir, "sandbox"))); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return program, remove, nil
}

// run runs a program in a folder. Its error has what the program printed.
func run(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s: %w", cmd, err), errors.New(string(out)))
	}
	return string(out), nil
}
