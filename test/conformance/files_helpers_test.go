package conformance

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"io"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// filed is a thread that only keeps files.
func filed(ctx context.Context, edit ...func(*skeinv1.ThreadSpec)) *runtimeclient.Thread {
	GinkgoHelper()
	return conversation(converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()}, edit...))
}

func put(ctx context.Context, t *runtimeclient.Thread, path, data string) *runtimev1.FileRecord {
	GinkgoHelper()
	rec, err := t.WriteFile(ctx, path, strings.NewReader(data), runtimeclient.WriteFileOptions{})
	Expect(err).NotTo(HaveOccurred())
	return rec
}

func got(ctx context.Context, t *runtimeclient.Thread, path string) string {
	GinkgoHelper()
	rc, err := t.ReadFile(ctx, path)
	Expect(err).NotTo(HaveOccurred())
	Expect(rc).NotTo(BeNil(), path)
	defer func() { Expect(rc.Close()).To(Succeed()) }()
	data, err := io.ReadAll(rc)
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}

func pathsOf(l *runtimev1.FileList) []string {
	out := []string{}
	for _, f := range l.Files {
		out = append(out, f.Path)
	}
	return out
}

// drawn encodes a picture whose left half is red.
func drawn(w, h int, encode func(io.Writer, image.Image) error) string {
	GinkgoHelper()
	img := image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.NRGBA{0, 0, 255, 255}, color.NRGBA{255, 0, 0, 255}})
	for y := range h {
		for x := range w / 2 {
			img.SetColorIndex(x, y, 1)
		}
	}
	var b bytes.Buffer
	Expect(encode(&b, img)).To(Succeed())
	return b.String()
}

func asJPEG(w io.Writer, i image.Image) error { return jpeg.Encode(w, i, nil) }
func asGIF(w io.Writer, i image.Image) error  { return gif.Encode(w, i, nil) }

// webp is the smallest picture there is: one pixel, lossless.
const webp = "RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"
