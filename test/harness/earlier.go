package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// EarlierCommit is the commit on main whose manager runs beside the present one, on one database. It is the release before, in a
// repository that has no releases yet: the first commit that says which schemas it can use. Move it forward when a migration raises
// schema_reader.minimum, or an older version of the sandbox protocol is given up, and never otherwise
// (docs/adr/0053-neighbouring-versions.md).
const EarlierCommit = "dad75a3260e1d39b8d15c99a45633ac2311169d5"

// ErrNoHistory means that the checkout does not have the commit to build the earlier version from.
var ErrNoHistory = errors.New("two versions cannot run side by side without the history of the repository")

// BuildEarlier builds the programs manager and sandbox of EarlierCommit from the history of the repository, once, and returns their
// folder. It fails with ErrNoHistory where there is no such commit. Its flags are those of `make build`, so that what the two
// versions share is in the cache.
func BuildEarlier(ctx context.Context) (dir string, err error) {
	if _, err := run(ctx, Root(), "git", "cat-file", "-e", EarlierCommit+"^{commit}"); err != nil {
		return "", fmt.Errorf("%w: commit %s is missing: in a shallow clone run `git fetch --unshallow`, and in CI check out with the whole history (fetch-depth: 0): %w",
			ErrNoHistory, EarlierCommit, err)
	}
	folder := filepath.Join(Root(), "build", "earlier")
	dir = filepath.Join(folder, EarlierCommit)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(folder, "making-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	source, archive, bin := filepath.Join(temporary, "source"), filepath.Join(temporary, "source.tar"), filepath.Join(temporary, "bin")
	if err := os.Mkdir(source, 0o755); err != nil {
		return "", err
	}
	for _, step := range [][]string{
		{Root(), "git", "archive", "--output=" + archive, EarlierCommit},
		{source, "tar", "-xf", archive},
		{source, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", bin + string(filepath.Separator), "./cmd/manager", "./cmd/sandbox"},
	} {
		if _, err := run(ctx, step[0], step[1], step[2:]...); err != nil {
			return "", fmt.Errorf("build the earlier version: %w", err)
		}
	}
	return dir, os.Rename(bin, dir)
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
