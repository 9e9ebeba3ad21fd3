// Bootstrap builds the missing programs of the development cluster and then becomes the devcluster binary.
//
// It uses only the standard library, so that it compiles in a second; everything else in hack/devcluster takes
// minutes on a cold machine. Each artifact (control plane with or without a node's programs, node, dns, gvisor) is in a cache folder named by a hash of
// what it is made from; see [artifact].
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// hugePagesCommand runs another command, with huge pages where a page of memory takes long.
const hugePagesCommand = "huge-pages"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var x *exec.ExitError
	if errors.As(err, &x) && len(os.Args) > 1 && os.Args[1] == hugePagesCommand {
		os.Exit(max(x.ExitCode(), 1)) // the command has said why
	}
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted; what is built already is kept")
		}
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}

// run builds what the command line needs and replaces this process with the devcluster binary.
func run(ctx context.Context, args []string) error {
	src := os.Getenv("SKEIN_DEVCLUSTER_SRC")
	if src == "" {
		return errors.New("run hack/devcluster/devcluster.sh instead: it says where the sources are")
	}
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	c, err := openCache()
	if err != nil {
		return err
	}
	b := &builder{src: src, cache: c, out: os.Stderr, programs: ownPrograms}
	switch command {
	case hugePagesCommand:
		// An interrupt reaches the command by itself, as it is in the same process group, and must reach it once.
		asked, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return withHugePages(asked, os.Stderr, args[1:])
	case "down", "status":
		// Stopping a cluster must not wait for a compiler: any earlier version can do it.
		if dir := c.newest(controlPlane.name, withNode.name); dir != "" && !b.built(controlPlane) && !b.built(withNode) {
			return become(map[string]string{controlPlane.name: dir}, args)
		}
	case "build":
		w, err := buildWish(args[1:])
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		if err != nil {
			return err
		}
		w.artifacts = b.orWithNode(w.artifacts)
		return b.buildAll(ctx, w, func(name, dir string) { fmt.Printf("%s %s\n", name, dir) })
	}
	dirs := map[string]string{}
	w := wish{artifacts: b.orWithNode(wants(needsNode(args), hasFlag(args, "gvisor")))}
	if err := b.buildAll(ctx, w, func(name, dir string) { dirs[name] = dir }); err != nil {
		return err
	}
	return become(dirs, args)
}

// buildWish parses the flags of the build command.
func buildWish(args []string) (wish, error) {
	fs := flag.NewFlagSet("build", flag.ContinueOnError)
	controlPlaneOnly := fs.Bool("control-plane", false, "nothing for a node")
	withGVisor := fs.Bool("gvisor", false, "gVisor too, where a node is possible")
	programs := fs.Bool("programs", false, "nothing of the cluster; with --bin")
	bin := fs.String("bin", "", "also build the repository's own programs, into this `folder`")
	if err := fs.Parse(args); err != nil {
		return wish{}, err
	}
	if fs.NArg() > 0 {
		return wish{}, fmt.Errorf("build takes flags only, got %q", fs.Arg(0))
	}
	w := wish{bin: *bin}
	if w.bin != "" {
		abs, err := filepath.Abs(w.bin)
		if err != nil {
			return wish{}, err
		}
		if err := os.MkdirAll(abs, 0o755); err != nil {
			return wish{}, err
		}
		w.bin = abs
	}
	if !*programs {
		w.artifacts = wants(nodePossible() == "" && !*controlPlaneOnly, *withGVisor)
	} else if w.bin == "" {
		return wish{}, errors.New("build --programs needs --bin, the folder for them")
	}
	return w, nil
}

// become replaces this process with the devcluster binary, which finds the node's programs through its environment.
func become(dirs map[string]string, args []string) error {
	env := os.Environ()
	for _, a := range []artifact{nodeRuntime, clusterDNS, gvisor} {
		if dir := dirs[a.name]; dir != "" {
			env = append(env, "SKEIN_DEVCLUSTER_"+strings.ToUpper(a.name)+"="+dir)
		}
	}
	dir := dirs[withNode.name]
	if dir == "" {
		dir = dirs[controlPlane.name]
	}
	bin := filepath.Join(dir, "devcluster")
	return fmt.Errorf("%s: %w", bin, syscall.Exec(bin, append([]string{bin}, args...), env))
}

// needsNode reports whether a command will start or feed a node on this machine.
func needsNode(args []string) bool {
	if len(args) == 0 || (args[0] != "up" && args[0] != "load") || nodePossible() != "" {
		return false
	}
	for i, a := range args {
		switch {
		case a == "-h" || a == "-help" || a == "--help":
			return false
		case strings.TrimLeft(a, "-") == "node=false":
			return false
		case strings.HasPrefix(a, "-") && strings.TrimLeft(a, "-") == "node" && i+1 < len(args) && args[i+1] == "false":
			return false
		}
	}
	return true
}

// hasFlag reports whether a command line sets a boolean flag.
func hasFlag(args []string, name string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		given, value, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		return strings.HasPrefix(a, "-") && given == name && value != "false"
	})
}

// nodePossible returns why no node can run here, or "". It makes only cheap checks and settles most cases before
// anything is built or installed; the devcluster binary checks more.
func nodePossible() string {
	switch {
	case runtime.GOOS != "linux":
		return "a node needs Linux"
	case os.Geteuid() != 0:
		return "a node needs root"
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(b)) {
		var caps uint64
		if _, err := fmt.Sscanf(line, "CapEff: %x", &caps); err != nil {
			continue
		}
		const sysAdmin, netAdmin = 1 << 21, 1 << 12
		if caps&sysAdmin == 0 || caps&netAdmin == 0 {
			return "a node needs the capabilities SYS_ADMIN and NET_ADMIN"
		}
	}
	return ""
}
