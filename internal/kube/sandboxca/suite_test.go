package sandboxca_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestSandboxCA(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sandboxca")
}
