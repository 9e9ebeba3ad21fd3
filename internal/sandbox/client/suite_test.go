//go:build linux && (amd64 || arm64)

package client_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

// patience bounds what must happen, including code that must end by itself, with room for busy machines.
const patience = 2 * time.Minute

func patiently(o *supervisor.Options) { o.MaxWallTime = patience }

func TestMain(m *testing.M) {
	sandboxtest.Main()
	m.Run()
}

func TestClient(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sandbox client")
}
