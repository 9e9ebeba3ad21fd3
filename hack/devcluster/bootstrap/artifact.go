package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// artifact is one cached build: a folder of programs made from one Go module.
type artifact struct {
	name   string   // also the prefix of its folder in the cache
	module string   // folder of its module, relative to hack/devcluster
	skip   []string // folders in it that belong to other artifacts or to tests
	steps  func(src string) ([]step, error)
	// joint is set when its module is in the workspace. Then its only step is part of the build of the repository's
	// own programs, so that a package that several of them need is compiled once.
	joint bool
}

// step is one go build: packages into a folder or a file of the artifact.
type step struct {
	cgo  bool
	tags string
	ld   string
	out  string // relative to the artifact; a trailing slash means a folder
	pkgs []string
}

// recipe is part of every key. Increase it when the build changes without a change in the modules.
const recipe = "4"

var (
	// Either of the first two is the devcluster program. A machine without a node does not compile kubelet and kube-proxy.
	controlPlane = artifact{name: "controlplane", module: ".", skip: notOfTheControlPlane, steps: controlPlaneSteps(controlPlanePackage), joint: true}
	withNode     = artifact{name: "withnode", module: ".", skip: notOfTheControlPlane, steps: controlPlaneSteps(withNodePackage), joint: true}
	nodeRuntime  = artifact{name: "node", module: "node", steps: nodeSteps}
	clusterDNS   = artifact{name: "dns", module: "dns", steps: dnsSteps, joint: true}
	gvisor       = artifact{name: "gvisor", module: "gvisor", steps: gvisorSteps}
)

// notOfTheControlPlane are the folders of the control plane's module that belong to other artifacts.
var notOfTheControlPlane = []string{"bootstrap", "node", "dns", "gvisor", "test"}

// assets are the names under which envtest looks for its programs.
var assets = []string{"kube-apiserver", "etcd", "kubectl"}

// The packages of the artifacts that are built together with the repository's own programs.
const (
	controlPlanePackage = "github.com/skein-dev/skein/hack/devcluster"
	withNodePackage     = controlPlanePackage + "/withnode"
	dnsPackage          = controlPlanePackage + "/dns"
)

// controlPlaneSteps returns the recipe of a main package of the devcluster program.
func controlPlaneSteps(pkg string) func(src string) ([]step, error) {
	return func(src string) ([]step, error) {
		ld, err := controlPlaneLinkerFlags(src)
		return []step{{ld: ld, out: "devcluster", pkgs: []string{pkg}}}, err
	}
}

// controlPlaneLinkerFlags returns the flags that set the version. Without them, every component reports version v0.0.0-master, and
// clients refuse to use features that it has.
func controlPlaneLinkerFlags(src string) (string, error) {
	k, err := moduleVersion(filepath.Join(src, "go.mod"), "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(k, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	ld := "-s -w"
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, x := range [][2]string{{"gitVersion", k}, {"gitMajor", major}, {"gitMinor", minor},
			{"gitTreeState", "archive"}, {"gitCommit", "devcluster"}, {"buildDate", "1970-01-01T00:00:00Z"}} {
			ld += fmt.Sprintf(" -X %s.%s=%s", p, x[0], x[1])
		}
	}
	return ld, nil
}

func nodeSteps(src string) ([]step, error) {
	mod := filepath.Join(src, "node", "go.mod")
	containerd, err := moduleVersion(mod, "github.com/containerd/containerd/v2")
	if err != nil {
		return nil, err
	}
	runc, err := moduleVersion(mod, "github.com/opencontainers/runc")
	if err != nil {
		return nil, err
	}
	const cmd = "github.com/containerd/containerd/v2/cmd/"
	const cni = "github.com/containernetworking/plugins/plugins/"
	return []step{
		// Use no tag that matters to a package of the standard library or of another program here: that package and
		// everything that needs it would be compiled again. Without cgo, names and users are looked up in Go anyway.
		{tags: "no_btrfs,no_devmapper,no_zfs,nri_no_wasm", out: "bin/",
			ld:   "-s -w -X github.com/containerd/containerd/v2/version.Version=" + containerd,
			pkgs: []string{cmd + "containerd", cmd + "containerd-shim-runc-v2", cmd + "ctr"}},
		{ld: "-s -w", out: "cni/", pkgs: []string{cni + "main/ptp", cni + "main/loopback", cni + "ipam/host-local", cni + "meta/portmap"}},
		{ld: "-s -w", out: "bin/pause", pkgs: []string{"./pause"}},
		// containerd always passes runc a seccomp profile, so runc must be linked with libseccomp. It is linked
		// statically, because the program outlives the environment that built it.
		{cgo: true, tags: "seccomp,netgo,osusergo", out: "bin/runc",
			ld:   "-s -w -linkmode external -extldflags -static -X main.version=" + strings.TrimPrefix(runc, "v"),
			pkgs: []string{"github.com/opencontainers/runc"}},
	}, nil
}

// clusterOnly are modules that only the dev cluster's programs use, with those of a node. Their functions are compiled without inlining, which
// takes a quarter off the compiler's time for them. What the manager uses too is compiled in full, and so is etcd, which works for every test.
// A test compares the list with what the manager imports.
var clusterOnly = []string{
	"k8s.io/kubernetes", "k8s.io/kubectl", "k8s.io/kubelet", "k8s.io/dynamic-resource-allocation", "k8s.io/component-helpers", "k8s.io/cri-api", "k8s.io/cri-client",
	"k8s.io/endpointslice", "k8s.io/metrics", "k8s.io/pod-security-admission", "k8s.io/cloud-provider", "k8s.io/csi-translation-lib", "k8s.io/kube-scheduler",
	"k8s.io/mount-utils", "k8s.io/controller-manager", "sigs.k8s.io/knftables", "github.com/google/cadvisor", "github.com/google/nftables",
	"github.com/container-storage-interface/spec", "gopkg.in/go-jose/go-jose.v2",
	"github.com/coredns/coredns", "github.com/coredns/caddy", "github.com/quic-go/quic-go", "github.com/miekg/dns", "github.com/pires/go-proxyproto",
	"github.com/containerd", "github.com/opencontainers", "github.com/containernetworking", "github.com/containers", "github.com/checkpoint-restore", "github.com/cilium",
	"github.com/moby/sys", "github.com/moby/spdystream", "github.com/Microsoft", "github.com/tetratelabs", "github.com/erofs", "github.com/intel", "github.com/godbus", "github.com/vishvananda",
	"github.com/mdlayher", "github.com/cyphar", "github.com/pelletier",
}

// compilerFlags returns the flags of the compiler.
func compilerFlags() []string {
	flags := []string{noDebugInformation}
	for _, module := range clusterOnly {
		flags = append(flags, "-gcflags="+module+"/...=-dwarf=false -l")
	}
	return flags
}

func dnsSteps(string) ([]step, error) {
	return []step{{ld: "-s -w", out: "bin/coredns", pkgs: []string{dnsPackage}}}, nil
}

func gvisorSteps(string) ([]step, error) {
	return []step{
		{ld: "-s -w", out: "bin/runsc", pkgs: []string{"gvisor.dev/gvisor/runsc"}},
		{ld: "-s -w", out: "bin/containerd-shim-runsc-v1", pkgs: []string{"./shim"}},
	}, nil
}

// moduleVersion returns the version of a module that a go.mod requires.
func moduleVersion(gomod, module string) (string, error) {
	b, err := os.ReadFile(gomod)
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(module) + `\s+(v\S+)`).FindSubmatch(b)
	if m == nil {
		return "", fmt.Errorf("%s does not require %s", gomod, module)
	}
	return string(m[1]), nil
}

// key returns a hash of everything that determines an artifact: go.mod, go.sum, its Go sources, the toolchain and the
// recipe. It omits tests and documentation, so that editing them rebuilds nothing.
func (a artifact) key(src, goVersion string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, recipe, goVersion, runtime.GOOS, runtime.GOARCH, a.name)
	root := filepath.Join(src, a.module)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains(a.skip, rel) || strings.HasPrefix(d.Name(), ".") && rel != "." || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if rel != "go.mod" && rel != "go.sum" && (filepath.Ext(rel) != ".go" || strings.HasSuffix(rel, "_test.go")) {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintln(h, filepath.ToSlash(rel))
		_, err = io.Copy(h, f)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hashing the sources of %s: %w", a.name, err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
