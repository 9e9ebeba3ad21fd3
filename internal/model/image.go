package model

import (
	"context"
	"encoding/base64"
)

// Image is an image of a message.
type Image struct {
	MimeType string // image/png, image/jpeg, image/webp or image/gif
	// Read returns the bytes. It is called when the request is made, at most once in each attempt.
	Read func(ctx context.Context) ([]byte, error)
	// Detail is the requested detail: low, high, or auto when empty. Providers without such an option ignore it.
	Detail string
}

// Base64 returns the bytes in base64, or an *Error of KindConfig when they cannot be read.
func (i Image) Base64(ctx context.Context) (string, error) {
	data, err := i.Read(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", Errorf(KindConfig, "an image of the conversation cannot be read: %v", err)
	}
	return base64.StdEncoding.EncodeToString(data), nil
}

// DataURL returns the image as a data URL.
func (i Image) DataURL(ctx context.Context) (string, error) {
	text, err := i.Base64(ctx)
	if err != nil {
		return "", err
	}
	return "data:" + i.MimeType + ";base64," + text, nil
}
