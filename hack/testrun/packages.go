package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

const (
	module = "github.com/skein-dev/skein"
	ginkgo = "github.com/onsi/ginkgo/v2"
)

// tierFolders are the tiers with folders of their own. Everything outside them is unit or integration.
var tierFolders = map[string][]string{
	"conformance": {"test/conformance"},
	"e2e":         {"test/e2e", "test/image"},
	"bench":       {"test/bench"},
	"v8":          {"internal/sandbox/v8"},
}

// tierRepeats are packages of other tiers that run once more in a tier, in the configuration that its environment
// sets, or with the specs that its label filter selects.
var tierRepeats = map[string][]string{
	"v8":      {"internal/sandbox/client", "internal/sandbox/hostiletest", "test/conformance"},
	"outages": {"test/conformance"},
}

// clusterHelpers are the packages that show that a test needs a control plane, PostgreSQL or a browser. A package whose tests
// import one of them, or are its own, belongs to the integration tier.
var clusterHelpers = []string{
	module + "/test/harness",
	module + "/test/browser",
	module + "/internal/store/storetest/pgtest",
	module + "/internal/thread/s3test",
	"sigs.k8s.io/controller-runtime/pkg/envtest",
}

// testPackage is a package that has tests.
type testPackage struct {
	Path   string // import path
	Dir    string
	Ginkgo bool // whether its tests are a Ginkgo suite
	Tier   string
}

type listedPackage struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
	TestImports, XTestImports []string
}

// listPackages returns the packages with tests that the patterns match in the module of a folder.
func listPackages(ctx context.Context, dir string, patterns []string) ([]testPackage, error) {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles,TestImports,XTestImports"}, patterns...)...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	var found []testPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		imports := slices.Concat(p.TestImports, p.XTestImports)
		found = append(found, testPackage{Path: p.ImportPath, Dir: p.Dir, Ginkgo: slices.Contains(imports, ginkgo), Tier: tierOf(p.ImportPath, imports)})
	}
}

// in reports whether a package belongs to a tier.
func (p testPackage) in(tier string) bool {
	return p.Tier == tier || slices.Contains(tierRepeats[tier], strings.TrimPrefix(p.Path, module+"/"))
}

// tierOf returns the tier of a package: by its folder, else by what its tests import.
func tierOf(path string, imports []string) string {
	rel := strings.TrimPrefix(path, module+"/")
	for tier, folders := range tierFolders {
		for _, f := range folders {
			if rel == f || strings.HasPrefix(rel, f+"/") {
				return tier
			}
		}
	}
	for _, h := range clusterHelpers {
		if path == h || slices.Contains(imports, h) {
			return "integration"
		}
	}
	return "unit"
}
