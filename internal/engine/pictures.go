package engine

import (
	"context"
	"fmt"
	"io"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/thread"
)

// Bounds of the images of one request.
const (
	// maxPictureBytes of one: providers refuse more than 5 MiB in base64. Of a larger one a smaller copy is shown.
	maxPictureBytes = 3 << 20
	// maxPictures and maxPicturesBytes of all; the newest count first.
	maxPictures      = 20
	maxPicturesBytes = 16 << 20
	// defaultImageThreshold is of how many messages images are shown where the prompt does not say.
	defaultImageThreshold = 10
)

// pictured shows the images that are attached to the newest messages to a model that can see (AGT-05). All others
// are named with the rest of the files.
func (r *run) pictured(ctx context.Context, messages []model.Message) ([]model.Message, error) {
	s := r.side()
	recent := int(ptr.Deref(s.Prompt.Spec.RecentImageThreshold, defaultImageThreshold))
	files := transcript.PicturePaths(r.conv)
	if recent == 0 || len(files) == 0 || !s.Model.Spec.Capabilities.Sees() {
		return messages, nil
	}
	st, err := r.state(ctx)
	if err != nil {
		return nil, err
	}
	count, bytes, copied := 0, int64(0), false
	for i := len(messages) - 1; i >= max(1, len(messages)-recent); i-- {
		if m := &messages[i]; len(m.Attachments) == 0 || m.Role != model.RoleUser && m.Role != model.RoleTool {
			continue
		}
		for _, name := range messages[i].Attachments {
			path, ok := files[name]
			if !ok || count >= maxPictures {
				continue
			}
			picture, size, err := pictureOf(ctx, st, path)
			if err != nil {
				return nil, err
			}
			if picture == nil || bytes+size > maxPicturesBytes {
				continue
			}
			if !copied {
				messages, copied = slices.Clone(messages), true
			}
			messages[i].Images = append(messages[i].Images, *picture)
			count, bytes = count+1, bytes+size
		}
	}
	return messages, nil
}

// pictureOf makes the image of a file, or a smaller copy of one that is too large; nil when it is none, or gone.
func pictureOf(ctx context.Context, st *thread.State, path string) (*model.Image, int64, error) {
	rec, err := st.StatFile(ctx, path)
	switch {
	case thread.IsInvalid(err):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	case rec == nil || rec.IsDirectory || !transcript.IsPicture(rec.MimeType):
		return nil, 0, nil
	case rec.Size > maxPictureBytes:
		small, err := st.Thumbnail(ctx, path, thread.ThumbnailOptions{Width: thread.MaxThumbnail, Height: thread.MaxThumbnail})
		if thread.IsInvalid(err) || err == nil && small == nil {
			return nil, 0, nil // it stays named
		}
		if err != nil {
			return nil, 0, err
		}
		return &model.Image{MimeType: small.MimeType, Read: func(context.Context) ([]byte, error) { return small.Data, nil }}, int64(len(small.Data)), nil
	}
	return &model.Image{MimeType: rec.MimeType, Read: func(ctx context.Context) ([]byte, error) { return readPicture(ctx, st, path) }}, rec.Size, nil
}

// readPicture reads a file when the request is made.
func readPicture(ctx context.Context, st *thread.State, path string) ([]byte, error) {
	body, _, _, err := st.OpenContents(ctx, path)
	if err != nil {
		return nil, err
	}
	if body == nil {
		return nil, fmt.Errorf("the file %s was deleted meanwhile", path)
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, maxPictureBytes+1))
	if err == nil && len(data) > maxPictureBytes {
		err = fmt.Errorf("the file %s has grown meanwhile", path)
	}
	return data, err
}
