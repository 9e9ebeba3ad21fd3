//go:build linux && (amd64 || arm64)

package v8_test

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	sandboxtest.Main()
	if len(os.Args) > 1 && os.Args[1] == "run" {
		brokenEngine() // replaces Deno
		os.Exit(0)
	}
	m.Run()
}

func TestV8(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sandbox v8 engine")
}
