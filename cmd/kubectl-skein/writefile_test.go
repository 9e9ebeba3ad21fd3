package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

var _ = Describe("a file that is written", func() {
	var dir string
	text := func(s string) func(io.Writer) error { return copyOf(strings.NewReader(s)) }
	mode := func(name string) os.FileMode {
		GinkgoHelper()
		info, err := os.Lstat(filepath.Join(dir, name))
		Expect(err).NotTo(HaveOccurred())
		return info.Mode()
	}

	BeforeEach(func() { dir = GinkgoT().TempDir() })

	It("keeps the permissions of one that exists, and has those that the umask leaves otherwise", func() {
		mask := unix.Umask(0o027)
		defer unix.Umask(mask)
		private := filepath.Join(dir, "private")
		Expect(os.WriteFile(private, []byte("before"), 0o600)).To(Succeed())
		Expect(writeFile(private, false, text("after"))).To(Succeed())
		Expect(os.ReadFile(private)).To(BeEquivalentTo("after"))
		Expect(mode("private")).To(Equal(os.FileMode(0o600)))
		Expect(writeFile(filepath.Join(dir, "new"), false, text("new"))).To(Succeed())
		Expect(mode("new")).To(Equal(os.FileMode(0o640)))
		Expect(writeFile(filepath.Join(dir, "new"), true, text("a backup"))).To(Succeed())
		Expect(mode("new")).To(Equal(os.FileMode(0o600)), "a backup is private, whatever was there")
	})

	It("leaves links, pipes and devices where they are", func() {
		target, link, pipe := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
		Expect(os.WriteFile(target, nil, 0o600)).To(Succeed())
		Expect(os.Symlink("target", link)).To(Succeed())
		Expect(writeFile(link, false, text("through the link"))).To(Succeed())
		Expect(os.ReadFile(target)).To(BeEquivalentTo("through the link"))
		Expect(mode("link") & os.ModeSymlink).NotTo(BeZero())

		Expect(unix.Mkfifo(pipe, 0o600)).To(Succeed())
		end, err := os.OpenFile(pipe, os.O_RDWR, 0) // a reader, so that a writer can open it
		Expect(err).NotTo(HaveOccurred())
		defer end.Close()
		Expect(writeFile(pipe, false, text("into the pipe"))).To(Succeed())
		Expect(mode("pipe") & os.ModeNamedPipe).NotTo(BeZero())
		got := make([]byte, len("into the pipe"))
		Expect(io.ReadFull(end, got)).To(Equal(len(got)))
		Expect(string(got)).To(Equal("into the pipe"))

		Expect(writeFile(dir, false, text("x"))).To(MatchError(ContainSubstring("is a folder: name a file")))
	})

	It("names the file in an error, and not the one that it writes first", func() {
		name := filepath.Join(dir, "nowhere", "a.txt")
		Expect(writeFile(name, false, text("x"))).To(MatchError("open " + name + ": no such file or directory"))
	})

	It("stays as it was when the writing fails", func() {
		name := filepath.Join(dir, "kept")
		Expect(os.WriteFile(name, []byte("before"), 0o600)).To(Succeed())
		broken := errors.New("cut off")
		Expect(writeFile(name, false, func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return broken })).To(MatchError(broken))
		Expect(os.ReadFile(name)).To(BeEquivalentTo("before"))
		Expect(os.ReadDir(dir)).To(HaveLen(1))
	})
})
