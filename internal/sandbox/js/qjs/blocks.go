//go:build linux && (amd64 || arm64)

package qjs

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"modernc.org/libc"
)

// Large blocks of the engine's heap are separate mappings. When a block grows (an array, a buffer), the kernel moves
// it without a copy, so that old and new are never both resident. A freed block returns to the kernel at once.

// largeBlock is the minimum size of a block with its own mapping.
const largeBlock = 128 << 10

// blockHead is the space before the bytes of a large block. It keeps their alignment and distinguishes them from
// small blocks: only blocks at this offset in a page are looked up.
const blockHead = 16

const pageSize = 4 << 10

// blocks maps the large blocks of this process, by the address of their bytes, to the lengths of their mappings. mu
// guards lengths. The rest is for images: it is written before the first engine runs code.
type blocks struct {
	mu      sync.Mutex
	lengths map[uintptr]uintptr

	first uintptr // address of the first image; 0 means that there is none
	made  uintptr // images that this process made
	arena *arena  // of the image that is being made
}

var heap = blocks{lengths: map[uintptr]uintptr{}}

func mapping(size uintptr) uintptr { return (size + blockHead + pageSize - 1) &^ (pageSize - 1) }

// length returns the length of a large block's mapping, or 0 for any other block.
func (b *blocks) length(p uintptr) uintptr {
	if p&(pageSize-1) != blockHead {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lengths[p]
}

// move records that the block at p, if any, is now at q with a mapping of n bytes.
func (b *blocks) move(p, q, n uintptr) uintptr {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lengths, p)
	if q != 0 {
		b.lengths[q] = n
	}
	return q
}

// mapBlock returns 0 when the kernel has no more memory.
func (b *blocks) mapBlock(size uintptr) uintptr {
	n := mapping(size)
	p, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON, ^uintptr(0), 0)
	if errno != 0 {
		return 0
	}
	return b.move(0, p+blockHead, n)
}

func (b *blocks) resize(p, old, size uintptr) uintptr {
	n := mapping(size)
	if n == old {
		return p
	}
	q, _, errno := unix.Syscall6(unix.SYS_MREMAP, p-blockHead, old, n, unix.MREMAP_MAYMOVE, 0, 0)
	if errno != 0 {
		return 0
	}
	return b.move(p, q+blockHead, n)
}

// inImage reports whether a block belongs to an image.
func (b *blocks) inImage(p uintptr) bool { return b.first != 0 && p-b.first < maxImages*ImageSpan }

// usable returns how many bytes a block of any kind holds.
func (b *blocks) usable(tls *libc.TLS, p uintptr) uintptr {
	if b.inImage(p) {
		return *at[uintptr](p - imageHead)
	}
	if n := b.length(p); n != 0 {
		return n - blockHead
	}
	return uintptr(libc.Xmalloc_usable_size(tls, p))
}

func (b *blocks) malloc(tls *libc.TLS, size uintptr) uintptr {
	if b.arena != nil {
		return b.arena.malloc(size)
	}
	if size >= largeBlock {
		return b.mapBlock(size)
	}
	return libc.Xmalloc(tls, libc.Tsize_t(size))
}

func (b *blocks) free(tls *libc.TLS, p uintptr) {
	if b.inImage(p) {
		if b.arena != nil {
			b.arena.free(p)
		}
		return
	}
	n := b.length(p)
	if n == 0 {
		libc.Xfree(tls, p)
		return
	}
	b.move(p, 0, 0)
	_, _, _ = unix.Syscall(unix.SYS_MUNMAP, p-blockHead, n, 0)
}

// realloc returns 0, and leaves p as it is, when there is no more memory.
func (b *blocks) realloc(tls *libc.TLS, p, size uintptr) uintptr {
	if b.inImage(p) {
		return b.moved(tls, p, size)
	}
	if old := b.length(p); old != 0 {
		return b.resize(p, old, size)
	}
	if size < largeBlock {
		return libc.Xrealloc(tls, p, libc.Tsize_t(size))
	}
	q := b.mapBlock(size)
	if q == 0 {
		return 0
	}
	n := min(uintptr(libc.Xmalloc_usable_size(tls, p)), size)
	copy(unsafe.Slice(at[byte](q), n), unsafe.Slice(at[byte](p), n))
	libc.Xfree(tls, p)
	return q
}

// moved is realloc for a block of an image. It takes a new block, because those of images lie side by side.
func (b *blocks) moved(tls *libc.TLS, p, size uintptr) uintptr {
	n := b.usable(tls, p)
	if size <= n {
		return p
	}
	q := b.malloc(tls, size)
	if q != 0 {
		copy(unsafe.Slice(at[byte](q), n), unsafe.Slice(at[byte](p), n))
		b.free(tls, p)
	}
	return q
}
