package image

import (
	"context"
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/harness"
)

var _ = DescribeTable("An image", Label("image"), func(ctx SpecContext, target, flag string, beside ...string) {
	dir := GinkgoT().TempDir()
	archive := filepath.Join(dir, target+".tar")
	build := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "image.sh"), target, "skein.dev/"+target+":test", archive)
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))

	img, err := readArchive(archive)
	Expect(err).NotTo(HaveOccurred())
	By("being not root, and nothing but the programs")
	Expect(img.Config.User).To(Equal("65532:65532"))
	Expect(img.Config.Entrypoint).To(Equal([]string{"/" + target}))
	Expect(img.Config.Cmd).To(BeEmpty())
	programs := append(beside, target)
	Expect(slices.Collect(maps.Keys(img.files))).To(ConsistOf(programs))
	for name, file := range img.files {
		Expect(file.mode.Perm()).To(Equal(os.FileMode(0o555)), "everybody may run %s and nobody may change it", name)
	}

	By("being static: no loader, no library")
	root := filepath.Join(dir, "root")
	Expect(img.unpack(root)).To(Succeed())
	// The folders above belong to root alone; within the chroot only this one counts.
	Expect(os.Chmod(root, 0o755)).To(Succeed())
	for _, name := range programs {
		program, err := elf.Open(filepath.Join(root, name))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(program.Close)
		for _, p := range program.Progs {
			Expect(p.Type).NotTo(Equal(elf.PT_INTERP), name)
		}
	}

	By("starting as its user with nothing else around it")
	help := inside(ctx, root, "/"+target, "--help")
	text, _ := help.CombinedOutput()
	Expect(help.ProcessState).NotTo(BeNil())
	Expect(help.ProcessState.Exited()).To(BeTrue(), "it was killed: %s", text)
	Expect(string(text)).To(ContainSubstring(flag))
},
	Entry("of the manager", "manager", "data-dir", SpecTimeout(3*time.Minute)),
	Entry("of the sandbox", "sandbox", "cert-dir", "sandbox-child", SpecTimeout(3*time.Minute)),
)

// inside makes a command that runs in a root folder of its own, as the image's user.
func inside(ctx context.Context, root string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	return cmd
}
