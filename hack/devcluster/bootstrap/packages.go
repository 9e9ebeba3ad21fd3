package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// need is a program or file that a Debian package provides.
type need struct {
	pkg     string
	present func() bool
	why     string
}

func program(names ...string) func() bool {
	return func() bool {
		for _, n := range names {
			if _, err := exec.LookPath(n); err != nil {
				return false
			}
		}
		return true
	}
}

func file(globs ...string) func() bool {
	return func() bool {
		for _, g := range globs {
			if m, _ := filepath.Glob(g); len(m) == 0 {
				return false
			}
		}
		return true
	}
}

var (
	// runtimePackages are what a node's programs call: kube-proxy, portmap and the NetworkPolicy enforcer use nft.
	runtimePackages = []need{
		{"nftables", program("nft"), "Services and NetworkPolicies"},
		{"mount", program("mount", "umount"), "volumes"},
	}
	// buildPackages are what compiling and linking runc needs.
	buildPackages = []need{
		{"gcc", program("gcc"), "compiling runc"},
		{"libc6-dev", file("/usr/include/stdlib.h"), "compiling runc"},
		{"pkg-config", program("pkg-config"), "compiling runc"},
		{"libseccomp-dev", file("/usr/include/seccomp.h", "/usr/lib*/*/libseccomp.a"), "seccomp profiles of containers"},
	}
)

// installPackages installs what is missing with apt-get, or returns an error that says what to install.
func (b *builder) installPackages(ctx context.Context, needs []need) error {
	var pkgs, reasons []string
	for _, n := range needs {
		if !n.present() {
			pkgs = append(pkgs, n.pkg)
			reasons = append(reasons, n.pkg+" ("+n.why+")")
		}
	}
	if len(pkgs) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("missing on this system: %s; install them, or use --node=false", strings.Join(reasons, ", "))
	}
	fmt.Fprintf(b.out, "devcluster: installing %s\n", strings.Join(reasons, ", "))
	if lists, _ := filepath.Glob("/var/lib/apt/lists/*_Packages*"); len(lists) == 0 {
		if err := apt(ctx, "update"); err != nil {
			return err
		}
	}
	install := append([]string{"install", "-y", "--no-install-recommends"}, pkgs...)
	err := apt(ctx, install...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// Old package lists name versions that the mirror no longer has.
	if apt(ctx, "update") == nil && apt(ctx, install...) == nil {
		return nil
	}
	return err
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	return nil
}
