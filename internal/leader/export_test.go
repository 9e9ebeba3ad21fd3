package leader

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Boot makes this machine appear to have booted again, until the spec ends.
func Boot(t FullGinkgoTInterface, id string) {
	real := bootID
	bootID = filepath.Join(t.TempDir(), "boot_id")
	Expect(os.WriteFile(bootID, []byte(id), 0o600)).To(Succeed())
	t.DeferCleanup(func() { bootID = real })
}
