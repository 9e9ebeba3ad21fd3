package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/harness"
)

var _ = It("of the v8 engine's sandbox has Deno, what that is linked with and their licences, and nothing else", Label("image"), func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	archive := filepath.Join(dir, "v8.tar")
	script := func(name string, args ...string) string {
		GinkgoHelper()
		cmd := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", name), args...)
		cmd.Dir = harness.Root()
		out, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		return strings.TrimSpace(string(out))
	}
	script("deno.sh", "install")
	script("deno.sh", "files", "build/v8")
	script("image.sh", "sandbox-v8", "skein.dev/sandbox-v8:test", archive)

	img, err := readArchive(archive)
	Expect(err).NotTo(HaveOccurred())
	Expect(img.Config.User).To(Equal("65532:65532"))
	Expect(img.Config.Entrypoint).To(Equal([]string{"/sandbox"}))
	for name, file := range img.files {
		Expect(name).To(Or(Equal("sandbox"), Equal("sandbox-child"), Equal("deno"), MatchRegexp(`^lib64/ld-linux|^lib/[a-z0-9_-]+/lib(c|m|dl|rt|pthread|gcc_s)\.so\.\d$|^usr/share/doc/(deno|libc6|libgcc-s1)/copyright$`)))
		Expect(file.mode.Perm()&0o222).To(BeElementOf(os.FileMode(0), os.FileMode(0o200)), "nobody but its owner may change %s", name)
	}

	root := filepath.Join(dir, "root")
	Expect(img.unpack(root)).To(Succeed())
	Expect(os.Chmod(root, 0o755)).To(Succeed())
	version, err := inside(ctx, root, "/deno", "--version").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(version))
	Expect(string(version)).To(HavePrefix("deno " + script("deno.sh", "version") + " "))
}, SpecTimeout(5*time.Minute))
