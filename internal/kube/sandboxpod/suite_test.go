package sandboxpod_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestSandboxPod(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sandboxpod")
}
