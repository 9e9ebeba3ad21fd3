//go:build linux && (amd64 || arm64)

package supervisor_test

import (
	"os"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

// hostileArg starts the test binary as a child that does what a compromised engine might.
const hostileArg = "hostile-child"

func TestMain(m *testing.M) {
	sandboxtest.Main()
	if len(os.Args) > 2 && os.Args[1] == hostileArg {
		if !slices.Contains(os.Args, "--make-images=true") {
			hostileChild(os.Args[2])
		}
		os.Exit(0)
	}
	m.Run()
}

func TestSupervisor(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sandbox supervisor")
}
