package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// builder makes artifacts from the sources in src and puts them into the cache.
type builder struct {
	src   string
	cache *cache
	out   io.Writer
	gover string
}

// built says whether the present version of an artifact is in the cache.
func (b *builder) built(a artifact) bool {
	key, err := b.key(a)
	return err == nil && b.cache.has(a.name, key)
}

func (b *builder) key(a artifact) (string, error) {
	if b.gover == "" {
		// In the module's folder: its go line may select another toolchain.
		out, err := b.goCommand(context.Background(), controlPlane, false, "env", "GOVERSION").Output()
		if err != nil {
			return "", fmt.Errorf("go env GOVERSION: %w", explain(err))
		}
		b.gover = strings.TrimSpace(string(out))
	}
	return a.key(b.src, b.gover)
}

// buildAll makes the control plane, and with node the node's artifacts as well, where they are missing,
// and reports each one's folder.
func (b *builder) buildAll(ctx context.Context, node bool, report func(name, dir string)) error {
	wanted := []artifact{controlPlane}
	if node {
		wanted = append(wanted, nodeRuntime, clusterDNS, gvisor)
		if err := b.installPackages(ctx, runtimePackages); err != nil {
			return err
		}
	}
	for _, a := range wanted {
		key, err := b.key(a)
		if err != nil {
			return err
		}
		if !b.cache.has(a.name, key) {
			if err := b.build(ctx, a, key); err != nil {
				return fmt.Errorf("building %s: %w", a.name, err)
			}
		}
		report(a.name, b.cache.path(a.name, key))
	}
	return nil
}

// build makes one artifact under a temporary name and renames it when it is complete.
func (b *builder) build(ctx context.Context, a artifact, key string) error {
	unlock, err := b.cache.lock(ctx, b.out)
	if err != nil {
		return err
	}
	defer unlock()
	if b.cache.has(a.name, key) { // the build that was waited for made it
		return nil
	}
	b.cache.prune()
	if a.name == nodeRuntime.name {
		if err := b.installPackages(ctx, buildPackages); err != nil {
			return err
		}
	}
	steps, err := a.steps(b.src)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(b.cache.dir, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	p := newProgress(b.out, a.name)
	for _, s := range steps {
		if err := b.step(ctx, a, s, tmp, p); err != nil {
			return err
		}
	}
	if a.name == controlPlane.name {
		if err := linkAssets(tmp); err != nil {
			return err
		}
	}
	b.cache.touch(tmp)
	if err := os.Rename(tmp, b.cache.path(a.name, key)); err != nil {
		return err
	}
	p.done()
	return nil
}

func (b *builder) step(ctx context.Context, a artifact, s step, dir string, p *progress) error {
	flags := []string{"-tags=" + s.tags}
	p.start(b.stale(ctx, a, s, flags, p))
	defer p.stop()
	out := filepath.Join(dir, s.out)
	if strings.HasSuffix(s.out, "/") {
		out += "/"
	}
	args := append([]string{"build", "-v", "-p=2", "-ldflags=" + s.ld, "-o", out}, flags...)
	cmd := b.goCommand(ctx, a, s.cgo, append(args, s.pkgs...)...)
	cmd.Stderr = p
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("go build: %w\n%s", err, p.tail())
	}
	return nil
}

// stale counts the packages that are to be compiled; 0 when that is not known.
func (b *builder) stale(ctx context.Context, a artifact, s step, flags []string, p *progress) func() int {
	args := append([]string{"list", "-e", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, flags...)
	return func() int {
		cmd := b.goCommand(ctx, a, s.cgo, append(args, s.pkgs...)...)
		cmd.Stderr = p
		out, err := cmd.Output()
		if err != nil {
			return 0
		}
		return len(strings.Fields(string(out)))
	}
}

// goCommand is the go tool in a module of this folder, free of settings that belong to the caller's own work.
func (b *builder) goCommand(ctx context.Context, a artifact, cgo bool, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(b.src, a.module)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	enabled := "0"
	if cgo {
		enabled = "1"
	}
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "GOOS=", "GOARCH=", "CGO_ENABLED="+enabled)
	return cmd
}

// linkAssets makes the folder that envtest is pointed at.
func linkAssets(dir string) error {
	if err := os.Mkdir(filepath.Join(dir, "assets"), 0o755); err != nil {
		return err
	}
	for _, n := range assets {
		if err := os.Symlink("../devcluster", filepath.Join(dir, "assets", n)); err != nil {
			return err
		}
	}
	return nil
}

// explain adds what a failed command wrote to its error.
func explain(err error) error {
	var x *exec.ExitError
	if errors.As(err, &x) && len(x.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(x.Stderr)))
	}
	return err
}
