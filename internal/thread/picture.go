package thread

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // registers the format with image.Decode
	_ "image/jpeg"
	_ "image/png"

	_ "golang.org/x/image/webp" // as the three above
)

// picture is what the head of an image says about it.
type picture struct {
	kind          string // jpeg, png, gif or webp
	width, height int
	pixelBytes    int64 // bytes that decoding needs for each pixel
}

func (p *picture) decodedBytes() int64 { return int64(p.width) * int64(p.height) * p.pixelBytes }

// examine reads the head of an image without decoding it. It returns nil when the data are not an image of a known
// kind.
func examine(data []byte) (*picture, error) {
	c, kind, err := image.DecodeConfig(bytes.NewReader(data))
	if errors.Is(err, image.ErrFormat) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("it is a broken image: %w", err)
	}
	p := &picture{kind: kind, width: c.Width, height: c.Height, pixelBytes: 4}
	switch c.ColorModel {
	case color.NRGBA64Model, color.RGBA64Model:
		p.pixelBytes = 8
	}
	switch kind {
	case "jpeg":
		if progressive(data) {
			p.pixelBytes = 16 // all coefficients are held until the end
		}
	case "webp":
		p.pixelBytes = 8 // colours and alpha while decoding
		w, h, err := webpFrame(data)
		if err != nil {
			return nil, err
		}
		p.width, p.height = max(p.width, w), max(p.height, h)
	}
	if p.width <= 0 || p.height <= 0 {
		return nil, errors.New("it is a broken image: it has no pixels")
	}
	return p, nil
}

// progressive reports whether a JPEG is progressive, by its frame header.
func progressive(data []byte) bool {
	for i := 2; i+4 <= len(data) && data[i] == 0xff; {
		switch marker := data[i+1]; {
		case marker == 0xff: // a fill byte
			i++
			continue
		case marker == 0xc2:
			return true
		case marker == 0xc0, marker == 0xc1, marker == 0xda:
			return false
		case marker == 0x01, marker >= 0xd0 && marker <= 0xd7: // without data
			i += 2
			continue
		}
		i += 2 + int(binary.BigEndian.Uint16(data[i+2:]))
	}
	return true // assume the one that needs more memory
}

// webpFrame returns the size of the largest frame in a WebP, which may differ from that of the canvas.
func webpFrame(data []byte) (width, height int, err error) {
	const head = 12 // RIFF, length, WEBP
	for i := head; i+8 <= len(data); {
		kind, size := string(data[i:i+4]), int64(binary.LittleEndian.Uint32(data[i+4:]))
		body := data[i+8:]
		if size > int64(len(body)) {
			return 0, 0, errors.New("it is a broken image: it ends too early")
		}
		switch {
		case kind == "VP8 " && size >= 10:
			width = max(width, int(binary.LittleEndian.Uint16(body[6:])&0x3fff))
			height = max(height, int(binary.LittleEndian.Uint16(body[8:])&0x3fff))
		case kind == "VP8L" && size >= 5:
			bits := binary.LittleEndian.Uint32(body[1:])
			width, height = max(width, int(bits&0x3fff)+1), max(height, int(bits>>14&0x3fff)+1)
		}
		i += 8 + int(size+size&1)
	}
	return width, height, nil
}

// imageSize returns width and height from the head of a PNG, JPEG, GIF or WebP; zeros for anything else (FIL-02).
func imageSize(head []byte) (width, height int) {
	c, _, err := image.DecodeConfig(bytes.NewReader(head))
	if err != nil {
		return 0, 0
	}
	return c.Width, c.Height
}
