package thread_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/thread"
)

// webpOf returns a lossless WebP of one colour within a canvas that declares another size.
func webpOf(canvasW, canvasH, w, h uint32) string {
	frame := []byte{0x2f, 0, 0, 0, 0, 0x07, 0x10, 0x11, 0x11, 0x88, 0x88, 0xfe, 0x07, 0}
	binary.LittleEndian.PutUint32(frame[1:], (w-1)|(h-1)<<14|1<<28)
	var b bytes.Buffer
	chunk := func(kind string, body []byte) {
		b.WriteString(kind)
		_ = binary.Write(&b, binary.LittleEndian, uint32(len(body)))
		b.Write(body)
	}
	vp8x := make([]byte, 10)
	vp8x[4], vp8x[5], vp8x[6] = byte(canvasW-1), byte((canvasW-1)>>8), byte((canvasW-1)>>16)
	vp8x[7], vp8x[8], vp8x[9] = byte(canvasH-1), byte((canvasH-1)>>8), byte((canvasH-1)>>16)
	chunk("VP8X", vp8x)
	chunk("VP8L", frame)
	body := b.String()
	size := make([]byte, 4)
	binary.LittleEndian.PutUint32(size, uint32(len(body)+4))
	return "RIFF" + string(size) + "WEBP" + body
}

var _ = Describe("thumbnails", Label("FIL-06"), func() {
	It("keep proportions and transparency, and are never larger than their source", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		img := image.NewNRGBA(image.Rect(0, 0, 3000, 30))
		for x := range 1500 {
			for y := range 30 {
				img.SetNRGBA(x, y, color.NRGBA{255, 0, 0, 255})
			}
		}
		var b bytes.Buffer
		Expect(png.Encode(&b, img)).To(Succeed())
		write(ctx, st, "/wide.png", b.String())
		t, err := st.Thumbnail(ctx, "/wide.png", thread.ThumbnailOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect([]int{t.Width, t.Height}).To(Equal([]int{256, 2}))
		Expect(t.MimeType).To(Equal("image/png"))
		small, err := png.Decode(bytes.NewReader(t.Data))
		Expect(err).NotTo(HaveOccurred())
		_, _, _, left := small.At(10, 1).RGBA()
		_, _, _, right := small.At(245, 1).RGBA()
		Expect(left).To(Equal(uint32(0xffff)))
		Expect(right).To(BeZero())

		b.Reset()
		Expect(jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 20, 10)), nil)).To(Succeed())
		write(ctx, st, "/tiny.jpg", b.String())
		Expect(st.Thumbnail(ctx, "/tiny.jpg", thread.ThumbnailOptions{})).To(HaveField("Width", 20))
		_, err = st.Thumbnail(ctx, "/tiny.jpg", thread.ThumbnailOptions{Width: 1025})
		Expect(err).To(beInvalid("width", "1 to 1024"))
	})

	It("are made from the current content of the file", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		for _, size := range []int{40, 50} {
			var b bytes.Buffer
			Expect(png.Encode(&b, image.NewGray(image.Rect(0, 0, size, size)))).To(Succeed())
			write(ctx, st, "/p.png", b.String())
			for range 2 {
				Expect(st.Thumbnail(ctx, "/p.png", thread.ThumbnailOptions{})).To(HaveField("Width", size))
			}
		}
	})

	DescribeTable("refuse images that would take too much memory", func(ctx SpecContext, name string, data func() string) {
		st := newEnv(ctx).create(ctx, "t")
		write(ctx, st, name, data())
		_, err := st.Thumbnail(ctx, name, thread.ThumbnailOptions{})
		Expect(err).To(beInvalid("path", "make it smaller first"))
	},
		Entry("a WebP whose frame is larger than its canvas", "/b.webp", func() string { return webpOf(16, 16, 16384, 16384) }),
		Entry("a WebP whose canvas is large", "/c.webp", func() string { return webpOf(16384, 16384, 16, 16) }),
		Entry("a GIF", "/b.gif", func() string { return "GIF89a\xff\xff\xff\xff\x80\x00\x00\x00\x00\x00\xff\xff\xff" }),
		Entry("a progressive JPEG", "/b.jpg", func() string {
			return "\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xc2\x00\x11\x08\x20\x00\x20\x00\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
		}),
	)

	It("are nil for files that are not images, and an error for broken images", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		_, err := st.Mkdir(ctx, "/d")
		Expect(err).NotTo(HaveOccurred())
		write(ctx, st, "/empty.png", "")
		write(ctx, st, "/large.bin", strings.Repeat("x", 33<<20))
		for _, p := range []string{"/d", "/empty.png", "/none", "/large.bin"} {
			Expect(st.Thumbnail(ctx, p, thread.ThumbnailOptions{})).To(BeNil(), p)
		}
		write(ctx, st, "/broken.png", "\x89PNG\r\n\x1a\nnot really")
		_, err = st.Thumbnail(ctx, "/broken.png", thread.ThumbnailOptions{})
		Expect(err).To(beInvalid("path", "broken image"))
	})

	It("wait for each other when many are requested at once, and all succeed", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		var b bytes.Buffer
		Expect(png.Encode(&b, image.NewRGBA64(image.Rect(0, 0, 3000, 3000)))).To(Succeed()) // 72 MB each
		write(ctx, st, "/p.png", b.String())
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				defer GinkgoRecover()
				Expect(st.Thumbnail(ctx, "/p.png", thread.ThumbnailOptions{Width: 100 + i})).To(HaveField("Width", 100+i))
			})
		}
		wg.Wait()
	})
})

var _ = Describe("uploads in parts", Label("FIL-03", "FIL-08"), func() {
	It("respect the quota, and can be aborted", func(ctx SpecContext) {
		e := newEnv(ctx, func(o *thread.Options) { o.FileQuota.Bytes = 10 })
		st := e.create(ctx, "t")
		u, err := st.Upload("/f", "upload-1")
		Expect(err).NotTo(HaveOccurred())
		_, err = u.Put(ctx, 0, strings.NewReader("123456"))
		Expect(err).NotTo(HaveOccurred())
		_, err = u.Put(ctx, 1, strings.NewReader("78901"))
		Expect(err).To(MatchError(ContainSubstring("quota is 10")))
		_, err = u.Put(ctx, thread.MaxParts, strings.NewReader("x"))
		Expect(err).To(beInvalid("part", "give 0 to"))
		_, err = u.Complete(ctx, 2, thread.WriteFileOptions{})
		Expect(err).To(beInvalid("parts", "part 1"))
		Expect(e.objects()).To(HaveLen(1))
		Expect(u.Abort(ctx)).To(Succeed())
		Expect(e.objects()).To(BeEmpty())
		_, err = st.Upload("/f", "../x")
		Expect(err).To(beInvalid("upload", "UUID"))
		_, err = st.Upload("/../f", "upload-1")
		Expect(err).To(beInvalid("path", ".."))
	})
})
