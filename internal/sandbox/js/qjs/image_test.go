//go:build linux && (amd64 || arm64)

package qjs_test

import (
	"bytes"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

func TestImages(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Images of engines")
}

var _ = Describe("an image of an engine", Ordered, func() {
	const size = 4 << 20 // more than the image takes
	var file *os.File

	create := func() *os.File {
		GinkgoHelper()
		fd, err := unix.MemfdCreate("image", 0)
		Expect(err).NotTo(HaveOccurred())
		f := os.NewFile(uintptr(fd), "image")
		DeferCleanup(f.Close)
		Expect(f.Truncate(qjs.ImageSpan)).To(Succeed())
		return f
	}
	content := func() []byte {
		GinkgoHelper()
		b := make([]byte, size)
		_, err := file.ReadAt(b, 0)
		Expect(err).NotTo(HaveOccurred())
		return b
	}

	number := func(vm *qjs.VM, code string) float64 {
		GinkgoHelper()
		v, ok := vm.Eval("test", code)
		Expect(ok).To(BeTrue(), code)
		n, ok := qjs.ToNumber(v)
		Expect(ok).To(BeTrue(), code)
		return n
	}

	BeforeAll(func() {
		file = create()
		Expect(qjs.MakeImage(int(file.Fd()), 0, func(vm *qjs.VM) ([]qjs.Value, error) {
			v, ok := vm.Eval("prepare", "globalThis.list = Array.from({ length: 5000 }, (_, i) => ({ i })); (n) => n + list.length")
			Expect(ok).To(BeTrue())
			global := vm.Global()
			defer vm.Free(global)
			for _, name := range []string{"first", "second"} {
				f, ok := vm.Func(name, 0, func([]qjs.Value) (qjs.Value, bool) { return qjs.Int(-1), true })
				Expect(ok).To(BeTrue())
				Expect(vm.Define(global, name, f, qjs.Plain)).To(BeTrue())
			}
			return []qjs.Value{v}, nil
		})).To(Succeed())
		qjs.UnmapMade()
	})

	It("is refused where another program made it, and where there is none", func() {
		other := create()
		_, err := qjs.MapImage(int(other.Fd()), 0)
		Expect(err).To(MatchError(qjs.ErrImage), "an empty file")
		head := content()[:qjs.HeaderSize]
		qjs.Elsewhere(head)
		_, err = other.WriteAt(head, 0)
		Expect(err).NotTo(HaveOccurred())
		_, err = qjs.MapImage(int(other.Fd()), 0)
		Expect(err).To(MatchError(qjs.ErrImage), "of another program")
		Expect(other.Truncate(10)).To(Succeed())
		_, err = qjs.MapImage(int(other.Fd()), 0)
		Expect(err).To(MatchError(qjs.ErrImage), "cut off")
	})

	It("gives an engine that goes on from there, within its limit, and leaves the image as it is", func() {
		before := content()
		var random []float64
		for range 3 {
			mapped, err := qjs.MapImage(int(file.Fd()), 0)
			Expect(err).NotTo(HaveOccurred())
			_, err = qjs.MapImage(int(file.Fd()), 0)
			Expect(err).To(HaveOccurred(), "the place is taken")
			vm, roots := mapped.Restore()
			vm.SetMemoryLimit(4 << 20)
			v, ok := vm.Call(roots[0], qjs.Undefined, qjs.Int(2))
			Expect(ok).To(BeTrue())
			n, _ := qjs.ToNumber(v)
			Expect(n).To(Equal(5002.0))
			// Blocks of the image grow, are freed, and lie in cycles.
			Expect(number(vm, "for (let i = 0; i < 5000; i++) list.push({ i }); list.length")).To(Equal(10000.0))
			Expect(number(vm, "for (const o of list) o.self = o; list.length = 7; for (let i = 0; i < 100000; i++) { const o = {}; o.o = o } list.length")).To(Equal(7.0))
			random = append(random, number(vm, "Math.random()"))
			_, ok = vm.Eval("test", "const all = []; for (;;) all.push(new Array(1000).fill(0))")
			Expect(ok).To(BeFalse())
			Expect(vm.Info(vm.Exception()).IsOutOfMemory()).To(BeTrue())
			Expect(vm.PeakMemory()).To(BeNumerically("~", 4<<20, 2<<20))
			vm.Close()
			mapped.Unmap()
		}
		Expect(random[0]).NotTo(Or(Equal(random[1]), Equal(random[2])))
		Expect(bytes.Equal(content(), before)).To(BeTrue())
	})

	It("gives an engine whose functions of the host are those that it is given", func() {
		mapped, err := qjs.MapImage(int(file.Fd()), 0)
		Expect(err).NotTo(HaveOccurred())
		defer mapped.Unmap()
		vm, _ := mapped.Restore()
		defer vm.Close()
		returns := func(n int32) qjs.HostFunc {
			return func([]qjs.Value) (qjs.Value, bool) { return qjs.Int(n), true }
		}
		Expect(vm.Bind(returns(1))).To(MatchError(ContainSubstring("2 functions of the host")))
		Expect(vm.Bind(returns(1), returns(20))).To(Succeed())
		third, ok := vm.Func("third", 0, returns(300))
		Expect(ok).To(BeTrue())
		global := vm.Global()
		defer vm.Free(global)
		Expect(vm.Define(global, "third", third, qjs.Plain)).To(BeTrue())
		Expect(number(vm, "first() + second() + third()")).To(Equal(321.0))
	})

	It("is small and dense: what was freed meanwhile is used again, and engines take no blocks between those of the image", func() {
		holes := create()
		Expect(qjs.MakeImage(int(holes.Fd()), 0, func(vm *qjs.VM) ([]qjs.Value, error) {
			for range 10 {
				_, ok := vm.Eval("prepare", "globalThis.list = Array.from({ length: 20000 }, (_, i) => ({ i, text: 'text' + i })).filter((_, i) => i % 40 === 0); 1")
				Expect(ok).To(BeTrue())
			}
			return nil, nil
		})).To(Succeed())
		qjs.UnmapMade()
		mapped, err := qjs.MapImage(int(holes.Fd()), 0)
		Expect(err).NotTo(HaveOccurred())
		defer mapped.Unmap()
		Expect(len(mapped.Content())).To(BeNumerically("<", 12<<20), "each list takes the place of the one before")
		vm, _ := mapped.Restore()
		defer vm.Close()
		Expect(number(vm, "globalThis.more = Array.from({ length: 2000 }, (_, i) => ({ i, text: 'more' + i })); more.length")).To(Equal(2000.0))
		before := make([]byte, len(mapped.Content()))
		_, err = holes.ReadAt(before, 0)
		Expect(err).NotTo(HaveOccurred())
		changed := 0
		for at := 0; at < len(before); at += 4096 {
			if !bytes.Equal(before[at:at+4096], mapped.Content()[at:at+4096]) {
				changed++
			}
		}
		Expect(changed).To(BeNumerically("<", 40), "copied pages of the image")
	})

	It("is not made of an engine with something under way", func() {
		other := create()
		Expect(qjs.MakeImage(int(other.Fd()), 0, func(vm *qjs.VM) ([]qjs.Value, error) {
			_, ok := vm.Eval("prepare", "Promise.resolve().then(() => 1)")
			Expect(ok).To(BeTrue())
			return nil, nil
		})).To(MatchError(ContainSubstring("under way")))
		_, err := qjs.MapImage(int(other.Fd()), 0)
		Expect(err).To(MatchError(qjs.ErrImage), "what it left is no image")
	})
})
