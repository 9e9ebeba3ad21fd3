package code

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/thread"
)

// maxReadBytes is the largest file that code can read at once.
const maxReadBytes = 16 << 20

func writeFile(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	var data []byte
	switch d := c.arg(1).(type) {
	case string:
		data = []byte(d)
	case []byte:
		data = d
	default:
		return nil, c.wrong(1, "the data, a string or bytes")
	}
	mimeType, err := c.optionalText(2, "MIME type")
	if err != nil {
		return nil, err
	}
	var o struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := c.into(3, "the options", &o); err != nil {
		return nil, err
	}
	return c.host.State.WriteFile(ctx, path, bytes.NewReader(data), thread.WriteFileOptions{MimeType: mimeType, Metadata: o.Metadata})
}

func readFile(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	data, rec, err := c.host.State.ReadFile(ctx, path, maxReadBytes, 1) // the copy is the answer
	if err != nil || rec == nil {
		return nil, err
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

func statFile(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	rec, err := c.host.State.StatFile(ctx, path)
	if err != nil || rec == nil {
		return nil, err
	}
	return rec, nil
}

func readdirFile(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	return c.host.State.ReadDir(ctx, path)
}

func unlinkFile(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	return nil, c.host.State.Unlink(ctx, path)
}

func mkdirFile(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	return c.host.State.Mkdir(ctx, path)
}

func rmdirFile(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	return nil, c.host.State.Rmdir(ctx, path)
}

func getFileStats(ctx context.Context, c *stateCall) (any, error) {
	return c.host.State.FileStats(ctx)
}

func grepFiles(ctx context.Context, c *stateCall) (any, error) {
	pattern, err := c.text(0, "pattern")
	if err != nil {
		return nil, err
	}
	page, err := c.host.State.GrepFiles(ctx, pattern)
	if err != nil {
		return nil, err
	}
	return page.Results, nil
}

func findFiles(ctx context.Context, c *stateCall) (any, error) {
	pattern, err := c.text(0, "pattern")
	if err != nil {
		return nil, err
	}
	return c.host.State.FindFiles(ctx, pattern)
}

// getFileThumbnail returns the bytes of a small JPEG or PNG; null when the file is not an image (FIL-06). The options
// {width, height} are the box that it fits into.
func getFileThumbnail(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	var o struct {
		Width  int `json:"width"`
		Height int `json:"height"`
	}
	if err := c.into(1, "the options", &o); err != nil {
		return nil, err
	}
	t, err := c.host.State.Thumbnail(ctx, path, thread.ThumbnailOptions{Width: o.Width, Height: o.Height})
	if t == nil || err != nil {
		return nil, err
	}
	return t.Data, nil
}
