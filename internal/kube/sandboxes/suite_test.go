package sandboxes_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestSandboxes(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sandboxes")
}
