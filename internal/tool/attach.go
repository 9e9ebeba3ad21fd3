package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// maxCallName is the longest part of a call's id that the names of its files include.
const maxCallName = 64

// Attach writes what a call returned to a file of the thread, which belongs to the call's result. The name is derived
// from the call and n, so that a repeat of the call writes the same file.
func Attach(ctx context.Context, st *thread.State, callID string, n int, mimeType string, data []byte) (store.Attachment, error) {
	if st == nil {
		return store.Attachment{}, errors.New("this call has no thread, which would take the file")
	}
	kind, _, err := mime.ParseMediaType(mimeType)
	if err != nil {
		kind = "application/octet-stream"
	}
	name := fmt.Sprintf("%s-%d%s", fileName(callID), n, extensionOf(kind))
	rec, err := st.WriteFile(ctx, "/attachments/"+name, bytes.NewReader(data), thread.WriteFileOptions{MimeType: kind})
	if err != nil {
		return store.Attachment{}, err
	}
	return store.Attachment{Path: rec.Path, Name: rec.Name, MimeType: rec.MimeType, Size: rec.Size}, nil
}

// fileName returns a file name for a call's id, which providers choose.
func fileName(callID string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return -1
	}, callID)
	if clean == callID && clean != "" && len(clean) <= maxCallName {
		return clean
	}
	sum := sha256.Sum256([]byte(callID))
	return "call-" + hex.EncodeToString(sum[:16])
}

// extensions maps the types that tools return most. The system's list is not used, because it differs between machines.
var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"audio/wav": ".wav", "audio/x-wav": ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "audio/mp4": ".m4a", "audio/webm": ".weba",
	"video/mp4": ".mp4", "application/pdf": ".pdf", "application/zip": ".zip", "application/gzip": ".gz",
	"application/json": ".json", "text/plain": ".txt", "text/csv": ".csv", "text/html": ".html", "text/markdown": ".md",
}

func extensionOf(kind string) string {
	if ext, ok := extensions[kind]; ok {
		return ext
	}
	return ".bin"
}
