// Package image builds the images as the Dockerfile says, with Debian's buildah, and looks at what came out.
package image

import (
	"os"
	"runtime"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestImage(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Image")
}

var _ = BeforeSuite(func() {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		Skip("buildah and chroot need root on Linux: run it with sudo")
	}
})
