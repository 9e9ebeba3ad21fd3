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
)

// builder builds artifacts from the sources in src and adds them to the cache.
type builder struct {
	src   string
	cache *cache
	out   io.Writer
	gover string
	// programs are the repository's own commands, as import paths.
	programs []string
}

// ownPrograms are the programs that `make build` puts into bin/.
var ownPrograms = []string{
	"github.com/skein-dev/skein/cmd/manager",
	"github.com/skein-dev/skein/cmd/sandbox",
	"github.com/skein-dev/skein/cmd/sandbox-child",
	"github.com/skein-dev/skein/cmd/kubectl-skein",
}

// wish is what a command line needs.
type wish struct {
	artifacts []artifact
	bin       string // the folder for the repository's own programs; empty means none
}

// wants returns the artifacts for a control plane, and optionally those for a node.
func wants(node, withGVisor bool) []artifact {
	if !node {
		return []artifact{controlPlane}
	}
	w := []artifact{withNode, nodeRuntime, clusterDNS}
	if withGVisor {
		w = append(w, gvisor)
	}
	return w
}

// orWithNode replaces the control plane by the one with a node's programs where that is built: it can do the same.
func (b *builder) orWithNode(list []artifact) []artifact {
	if hasArtifact(list, controlPlane) && b.built(withNode) {
		return []artifact{withNode}
	}
	return list
}

// keyed is an artifact with the key of its present sources.
type keyed struct {
	artifact
	key string
}

// built reports whether the present version of an artifact is in the cache.
func (b *builder) built(a artifact) bool {
	key, err := b.key(a)
	return err == nil && b.cache.has(a.name, key)
}

func (b *builder) key(a artifact) (string, error) {
	if b.gover == "" {
		// In the module's folder, because its go line may select another toolchain.
		out, err := b.goCommand(context.Background(), command{dir: b.src}, "env", "GOVERSION").Output()
		if err != nil {
			return "", fmt.Errorf("go env GOVERSION: %w", explain(err))
		}
		b.gover = strings.TrimSpace(string(out))
	}
	return a.key(b.src, b.gover)
}

// buildAll builds what is missing, and reports the folder of each artifact.
func (b *builder) buildAll(ctx context.Context, w wish, report func(name, dir string)) error {
	if hasArtifact(w.artifacts, nodeRuntime) {
		if err := b.installPackages(ctx, runtimePackages); err != nil {
			return err
		}
	}
	all := make([]keyed, 0, len(w.artifacts))
	for _, a := range w.artifacts {
		key, err := b.key(a)
		if err != nil {
			return err
		}
		all = append(all, keyed{a, key})
	}
	missing := b.missing(all)
	if len(missing) > 0 {
		unlock, err := b.cache.lock(ctx, b.out)
		if err != nil {
			return err
		}
		defer unlock()
		missing = b.missing(all) // the build that was waited for may have made them
		b.cache.prune()
	}
	if len(missing) > 0 || w.bin != "" {
		if err := b.build(ctx, missing, w.bin); err != nil {
			return err
		}
	}
	for _, k := range all {
		report(k.name, b.cache.path(k.name, k.key))
	}
	return nil
}

func (b *builder) missing(all []keyed) []keyed {
	var m []keyed
	for _, k := range all {
		if !b.cache.has(k.name, k.key) {
			m = append(m, k)
		}
	}
	return m
}

func hasArtifact(list []artifact, a artifact) bool {
	return slices.ContainsFunc(list, func(x artifact) bool { return x.name == a.name })
}

// build builds the missing artifacts, and the programs when bin is set. One go build compiles the joint artifacts.
// The others follow when it has begun its last package: from then on it links, and each link uses one processor.
func (b *builder) build(ctx context.Context, missing []keyed, bin string) error {
	var joint, apart []keyed
	for _, k := range missing {
		if k.name == nodeRuntime.name {
			if err := b.installPackages(ctx, buildPackages); err != nil {
				return err
			}
		}
		if k.joint {
			joint = append(joint, k)
		} else {
			apart = append(apart, k)
		}
	}
	if len(missing) > 0 {
		defer useHugePages(b.out)()
	}
	p := newProgress(b.out)
	defer p.stop()
	together := p.feed()
	var wg []chan error
	if len(joint) > 0 || bin != "" {
		done := make(chan error, 1)
		go func() { done <- b.buildJoint(ctx, joint, bin, together) }()
		wg = append(wg, done)
	} else {
		together.finish()
	}
	if len(apart) > 0 {
		done := make(chan error, 1)
		go func() { done <- b.buildApart(ctx, apart, p, together) }()
		wg = append(wg, done)
	}
	var errs []error
	for _, done := range wg {
		errs = append(errs, <-done)
	}
	if err := errors.Join(errs...); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	p.done()
	return nil
}

// buildJoint compiles the repository's programs and the joint artifacts with one go build in the workspace.
func (b *builder) buildJoint(ctx context.Context, joint []keyed, bin string, f *feed) error {
	defer f.finish()
	dirs, cleanup, err := b.folders(joint)
	if err != nil {
		return err
	}
	defer cleanup()
	out := bin
	var pkgs []string
	if out == "" {
		if out, err = os.MkdirTemp(b.cache.dir, ".build-"); err != nil {
			return err
		}
		defer os.RemoveAll(out)
	} else {
		pkgs = append(pkgs, b.programs...)
	}
	// Always pass the flags of the control plane: the Go tool records all flags in each program, and would link a
	// program with other flags again.
	version, err := controlPlaneLinkerFlags(b.src)
	if err != nil {
		return err
	}
	flags := append(compilerFlags(), "-ldflags=-s -w", "-ldflags="+controlPlanePackage+"="+version, "-ldflags="+withNodePackage+"="+version)
	steps := make([]step, len(joint))
	for i, k := range joint {
		s, err := k.steps(b.src)
		if err != nil {
			return err
		}
		steps[i] = s[0]
		pkgs = append(pkgs, s[0].pkgs...)
	}
	c := command{dir: filepath.Join(b.src, "..", ".."), work: filepath.Join(b.src, "..", "all.work"), flags: flags}
	if err := b.compile(ctx, c, out+"/", pkgs, f); err != nil {
		return err
	}
	for i, k := range joint {
		to := filepath.Join(dirs[i], steps[i].out)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := move(filepath.Join(out, filepath.Base(steps[i].pkgs[0])), to); err != nil {
			return err
		}
		if err := b.complete(k, dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// buildApart builds the artifacts of other modules, one after the other.
func (b *builder) buildApart(ctx context.Context, apart []keyed, p *progress, together *feed) error {
	type work struct {
		c    command
		step step
		feed *feed
	}
	dirs, cleanup, err := b.folders(apart)
	if err != nil {
		return err
	}
	defer cleanup()
	todo := make([][]work, len(apart))
	for i, k := range apart {
		steps, err := k.steps(b.src)
		if err != nil {
			return err
		}
		for _, s := range steps {
			c := command{dir: filepath.Join(b.src, k.module), cgo: s.cgo, flags: append(compilerFlags(), "-tags="+s.tags, "-ldflags="+s.ld)}
			f := p.feed()
			todo[i] = append(todo[i], work{c, s, f})
			f.expect(b.toCompile(ctx, c, s.pkgs, f)) // now, so that the estimate includes it and modules are fetched meanwhile
		}
	}
	select {
	case <-together.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	if availableMemory() < 3<<30 { // for a linker and two compilers
		select {
		case <-together.finished:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for i, k := range apart {
		for _, w := range todo[i] {
			out := filepath.Join(dirs[i], w.step.out)
			if strings.HasSuffix(w.step.out, "/") {
				out += "/"
			}
			err := b.compile(ctx, w.c, out, w.step.pkgs, w.feed)
			w.feed.finish()
			if err != nil {
				return fmt.Errorf("building %s: %w", k.name, err)
			}
		}
		if err := b.complete(k, dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// folders creates a temporary folder for each artifact, and returns a function that removes those that were not
// completed.
func (b *builder) folders(list []keyed) (dirs []string, cleanup func(), err error) {
	cleanup = func() {
		for _, d := range dirs {
			_ = os.RemoveAll(d)
		}
	}
	for range list {
		d, err := os.MkdirTemp(b.cache.dir, ".build-")
		if err != nil {
			cleanup()
			return nil, nil, err
		}
		dirs = append(dirs, d)
		if err := os.Chmod(d, 0o755); err != nil {
			cleanup()
			return nil, nil, err
		}
	}
	return dirs, cleanup, nil
}

// complete renames the folder of a finished artifact to its name in the cache.
func (b *builder) complete(k keyed, dir string) error {
	if k.name == controlPlane.name || k.name == withNode.name {
		if err := linkAssets(dir); err != nil {
			return err
		}
	}
	b.cache.touch(dir)
	return os.Rename(dir, b.cache.path(k.name, k.key))
}

// move renames a file. Between file systems it copies the file, under another name first, so that an interrupt leaves no part of it.
func move(from, to string) error {
	if os.Rename(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	part := filepath.Join(filepath.Dir(to), ".part-"+filepath.Base(to))
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := os.Rename(part, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// linkAssets creates the folder for envtest.
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
