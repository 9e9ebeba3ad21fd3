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
	var image []byte
	var file *os.File

	number := func(vm *qjs.VM, code string) float64 {
		GinkgoHelper()
		v, ok := vm.Eval("test", code)
		Expect(ok).To(BeTrue(), code)
		n, ok := qjs.ToNumber(v)
		Expect(ok).To(BeTrue(), code)
		return n
	}

	BeforeAll(func() {
		made, err := qjs.MakeImage(func(vm *qjs.VM) ([]qjs.Value, error) {
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
		})
		Expect(err).NotTo(HaveOccurred())
		image = bytes.Clone(made)
		qjs.Unmap(made)
		fd, err := unix.MemfdCreate("image", 0)
		Expect(err).NotTo(HaveOccurred())
		file = os.NewFile(uintptr(fd), "image")
		DeferCleanup(file.Close)
		Expect(file.Write(image)).To(Equal(len(image)))
	})

	It("is refused where another program made it", func() {
		other := bytes.Clone(image)
		qjs.Elsewhere(other)
		_, err := qjs.MapImage(other, int(file.Fd()), 0)
		Expect(err).To(MatchError(qjs.ErrImage))
		_, err = qjs.MapImage(image[:10], int(file.Fd()), 0)
		Expect(err).To(MatchError(qjs.ErrImage))
	})

	It("gives an engine that goes on from there, within its limit, and leaves the image as it is", func() {
		var random []float64
		for range 3 {
			mapped, err := qjs.MapImage(image, int(file.Fd()), 0)
			Expect(err).NotTo(HaveOccurred())
			_, err = qjs.MapImage(image, int(file.Fd()), 0)
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
			qjs.Unmap(mapped.Bytes())
		}
		Expect(random[0]).NotTo(Or(Equal(random[1]), Equal(random[2])))
		now := make([]byte, len(image))
		_, err := file.ReadAt(now, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.Equal(now, image)).To(BeTrue())
	})

	It("gives an engine whose functions of the host are those that it is given", func() {
		mapped, err := qjs.MapImage(image, int(file.Fd()), 0)
		Expect(err).NotTo(HaveOccurred())
		defer qjs.Unmap(mapped.Bytes())
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

	It("is not made of an engine with something under way", func() {
		_, err := qjs.MakeImage(func(vm *qjs.VM) ([]qjs.Value, error) {
			_, ok := vm.Eval("prepare", "Promise.resolve().then(() => 1)")
			Expect(ok).To(BeTrue())
			return nil, nil
		})
		Expect(err).To(MatchError(ContainSubstring("under way")))
	})
})
