//go:build linux && (amd64 || arm64)

package qjs

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"unsafe"

	"golang.org/x/sys/unix"
	"modernc.org/libc"
	lib "modernc.org/libquickjs"
)

// An image is the whole heap of an engine that has run our own code and nothing else. To make an engine from it takes
// a copy-on-write mapping, in place of the work that the image has behind it. Pointers in the heap are plain addresses,
// so an image works only at the address that it was made for, and only in the program that made it.

// Images lie between the program and the heap of the Go runtime, on every machine that we support. Where in there is
// decided at random when they are made.
const (
	imageLow  = 64 << 30
	imageHigh = 120 << 30
	// ImageSpan is the space between two images, in memory and in a file. It is the most that one may take.
	ImageSpan = 64 << 20
	// maxImages is the number of images that a process may make or map.
	maxImages = 4
)

// imageHead is the space before the bytes of a block of an image. It holds the size of the block.
const imageHead = 16

// maxRoots is the number of values that an image may hand over.
const maxRoots = 4

// header is the beginning of an image.
type header struct {
	base, length  uintptr
	program       [2]uintptr // addresses in the program that made the image
	rt, ctx, stat uintptr
	id            uintptr
	fresh         uint64 // size of the heap before prepare
	funcs         int    // functions of the host
	prims         [len(errorNames)]Value
	captured      [capturedValues]Value
	roots         [maxRoots]Value
}

// programMark returns addresses that differ where the program was loaded elsewhere, and mostly in another program.
func programMark() [2]uintptr { return [2]uintptr{fp(memMalloc), fp(lib.XJS_NewContext)} }

// ErrImage means that an image cannot be used in this process.
var ErrImage = errors.New("there is no image, or it was made by another program or for another place")

// arena is the space of an image that is being made. What is freed meanwhile is used again, so that the image stays small and dense.
type arena struct {
	base, next, end uintptr
	freed           map[uintptr][]uintptr // blocks by their size
}

func (a *arena) malloc(size uintptr) uintptr {
	size = roundedSize(size)
	if l := a.freed[size]; len(l) > 0 {
		a.freed[size] = l[:len(l)-1]
		return l[len(l)-1]
	}
	p := (a.next+15)&^15 + imageHead
	if p+size > a.end || p+size < p {
		return 0
	}
	a.next = p + size
	*at[uintptr](p - imageHead) = size
	return p
}

func (a *arena) free(p uintptr) {
	size := *at[uintptr](p - imageHead)
	a.freed[size] = append(a.freed[size], p)
}

// roundedSize returns the size that a block of an image gets: one of eight between a power of two and the next. Blocks of similar sizes,
// such as the engine's own arenas of small blocks, can take each other's place then.
func roundedSize(size uintptr) uintptr {
	step := uintptr(16)
	if n := bits.Len64(uint64(size)); n > 7 {
		step = 1 << (n - 4)
	}
	return (size + step - 1) &^ (step - 1)
}

// mapAt maps a part of a file at one address and nowhere else. kind is MAP_SHARED or MAP_PRIVATE.
func mapAt(base, length uintptr, kind, fd int, offset int64) error {
	p, _, errno := unix.Syscall6(unix.SYS_MMAP, base, length, unix.PROT_READ|unix.PROT_WRITE, uintptr(kind|unix.MAP_FIXED_NOREPLACE), uintptr(fd), uintptr(offset))
	if errno != 0 {
		return fmt.Errorf("mapping an image: %w", errno)
	}
	if p != base { // a kernel that does not know the flag takes the address as a wish
		_, _, _ = unix.Syscall(unix.SYS_MUNMAP, p, length, 0)
		return ErrImage
	}
	return nil
}

// MakeImage makes the image of a new engine after prepare. The engine's heap is the file itself, from the offset on, which must be a multiple
// of ImageSpan; the file must have ImageSpan bytes there. Until MakeImage has succeeded there is no image in the file. The values that prepare
// returns, four at the most, are handed over by Restore. The functions of the host that prepare makes must be given again, with Bind. prepare
// must leave no jobs. No other engine may be in use meanwhile.
func MakeImage(fd int, offset int64, prepare func(*VM) ([]Value, error)) error {
	if heap.made == maxImages {
		return errors.New("too many images")
	}
	if heap.first == 0 {
		heap.first = imageLow + rand.N(uintptr(imageHigh-imageLow)/ImageSpan-maxImages)*ImageSpan
	}
	base := heap.first + heap.made*ImageSpan
	if err := mapAt(base, ImageSpan, unix.MAP_SHARED, fd, offset); err != nil {
		return err
	}
	heap.made++
	a := &arena{base: base, next: base + unsafe.Sizeof(header{}), end: base + ImageSpan, freed: map[uintptr][]uintptr{}}
	heap.arena = a
	defer func() { heap.arena = nil }()

	vm, err := New()
	if err != nil {
		return err
	}
	h := at[header](base)
	h.fresh = vm.size()
	roots, err := prepare(vm)
	if err != nil {
		return err
	}
	lib.XJS_RunGC(vm.tls, vm.rt)
	if len(vm.modules)+len(vm.buffers)+len(vm.rejections) > 0 || lib.XJS_IsJobPending(vm.tls, vm.rt) != 0 || len(roots) > maxRoots {
		return errors.New("an engine with something under way cannot become an image")
	}
	if err := vm.closeArenas(); err != nil {
		return err
	}
	h.rt, h.ctx, h.stat, h.id, h.funcs = vm.rt, vm.ctx, vm.stat, vm.id, len(vm.funcs)
	for i, name := range errorNames {
		h.prims[i] = vm.prims.errors[name]
	}
	for i, v := range vm.captured() {
		h.captured[i] = *v
	}
	copy(h.roots[:], roots)
	h.base, h.length, h.program = base, (a.next-base+pageSize-1)&^(pageSize-1), programMark()
	return nil
}

// closeArenas makes the engine allocate no more small blocks from the arenas that it has. It allocates each block that is still free, and detaches the
// arenas from the engine's lists. An engine that is made from the image then allocates new arenas. Otherwise it would take the free blocks,
// which lie scattered over the image, and copy a page for nearly each of them.
func (vm *VM) closeArenas() error {
	const header = 8
	all := &at[lib.TJSRuntime](vm.rt).Fmalloc_ctx
	heads := heap.malloc(vm.tls, unsafe.Sizeof(all.Farena_list))
	if heads == 0 {
		return ErrImage
	}
	for i := range all.Ffree_arena_list {
		free := &all.Ffree_arena_list[i]
		for free.Fnext != uintptr(unsafe.Pointer(free)) {
			if lib.Xjs_malloc_rt(vm.tls, vm.rt, smallBlock(i)-header) == 0 {
				return ErrImage
			}
		}
		list, head := &all.Farena_list[i], at[lib.Tlist_head](heads+uintptr(i)*unsafe.Sizeof(lib.Tlist_head{}))
		head.Fnext, head.Fprev = uintptr(unsafe.Pointer(head)), uintptr(unsafe.Pointer(head))
		if list.Fnext != uintptr(unsafe.Pointer(list)) {
			*head = *list
			at[lib.Tlist_head](head.Fnext).Fprev, at[lib.Tlist_head](head.Fprev).Fnext = uintptr(unsafe.Pointer(head)), uintptr(unsafe.Pointer(head))
			list.Fnext, list.Fprev = uintptr(unsafe.Pointer(list)), uintptr(unsafe.Pointer(list))
		}
	}
	return nil
}

// smallBlock returns the size of the blocks in the arenas of an index, as the engine's allocator has them.
func smallBlock(i int) lib.Tsize_t {
	switch {
	case i < 15:
		return lib.Tsize_t(16 + i*8)
	case i < 23:
		return lib.Tsize_t(144 + (i-15)*16)
	default:
		return lib.Tsize_t(288 + (i-23)*32)
	}
}

// Image is a mapped image, from which one engine can be made.
type Image struct{ header *header }

// MapImage maps the image that is in a file at an offset, where MakeImage made it. It returns ErrImage if there is none for this process. The file is
// not changed.
func MapImage(fd int, offset int64) (*Image, error) {
	var h header
	n, err := unix.Pread(fd, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h)), offset)
	if err != nil {
		return nil, fmt.Errorf("reading an image: %w", err)
	}
	if uintptr(n) < unsafe.Sizeof(h) || h.program != programMark() || h.base < imageLow || h.base >= imageHigh || h.length > ImageSpan {
		return nil, ErrImage
	}
	if err := mapAt(h.base, h.length, unix.MAP_PRIVATE, fd, offset); err != nil {
		return nil, err
	}
	if heap.first == 0 || h.base < heap.first {
		heap.first = h.base
	}
	return &Image{header: at[header](h.base)}, nil
}

// Restore makes the engine of an image, once. It returns the values that prepare returned.
func (i *Image) Restore() (*VM, []Value) {
	h := i.header
	vm := &VM{tls: libc.NewTLS(), id: h.id, rt: h.rt, ctx: h.ctx, stat: h.stat, modules: map[string]*SyntheticModule{}, rejections: map[uintptr]Value{}, buffers: map[*byte]uintptr{}}
	if lastID.Load() < vm.id {
		lastID.Store(vm.id)
	}
	vms.Store(vm.id, vm)
	vm.prims.errors = make(map[string]Value, len(errorNames))
	for i, name := range errorNames {
		vm.prims.errors[name] = h.prims[i]
	}
	for i, v := range vm.captured() {
		*v = h.captured[i]
	}
	vm.funcs = make([]HostFunc, h.funcs)
	vm.funcs[0] = vm.collect
	lib.XJS_UpdateStackTop(vm.tls, vm.rt)
	// Math.random must not give the same numbers in each engine.
	at[lib.TJSContext](vm.ctx).Frandom_state = rand.Uint64() | 1
	m := at[memory](vm.stat)
	// What the image holds beyond a new engine is ours, not the code's.
	m.given = vm.size() - min(h.fresh, vm.size())
	m.peak = vm.size()
	vm.delayCollection(collectAfter)
	return vm, h.roots[:]
}

// Bind gives an engine from an image the functions of the host that prepare made there, in the same order. It must be called before the
// engine runs code that could call one of them.
func (vm *VM) Bind(funcs ...HostFunc) error {
	if len(funcs)+1 != len(vm.funcs) {
		return fmt.Errorf("an image with %d functions of the host cannot take %d", len(vm.funcs)-1, len(funcs))
	}
	copy(vm.funcs[1:], funcs)
	return nil
}

// collectAfter is how much the heap of an engine grows before its collector first looks for cycles. It has to look at
// the whole heap for that, and so to copy all pages of an image.
const collectAfter = 4 << 20

// delayCollection sets how much the heap may grow before the next collection.
func (vm *VM) delayCollection(bytes uint64) {
	lib.XJS_SetGCThreshold(vm.tls, vm.rt, libc.Tsize_t(vm.size()+bytes))
}

// size returns the size of the heap.
func (vm *VM) size() uint64 {
	return uint64(at[lib.TJSRuntime](vm.rt).Fmalloc_ctx.Fmalloc_state.Fmalloc_size)
}
