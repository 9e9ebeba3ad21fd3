package request

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Bounds of the images of one request.
const (
	// maxPictureBytes and maxPictureSide bound one image: providers refuse more than 5 MiB in base64, and more than 8,000 pixels on a
	// side. The model gets a smaller copy of a larger image.
	maxPictureBytes = 3 << 20
	maxPictureSide  = 8000
	// maxPictures and maxPicturesBytes bound all images of a request together. The newest have precedence.
	maxPictures      = 20
	maxPicturesBytes = 16 << 20
	// defaultImageThreshold is the number of newest messages whose images are shown, unless the prompt sets another.
	defaultImageThreshold = 10
)

// attachPictures returns the messages with the images that are attached to the newest of them, if the model can see images
// (AGT-05). All other images are only named, like other files.
func (k *Maker) attachPictures(ctx context.Context, conv *transcript.Conversation, messages []model.Message) ([]model.Message, error) {
	s := k.role.Side()
	recent := int(ptr.Deref(s.Prompt.Spec.RecentImageThreshold, defaultImageThreshold))
	files := transcript.PicturePaths(conv)
	if recent == 0 || len(files) == 0 || !s.Model.Spec.Capabilities.Sees() {
		return messages, nil
	}
	st, err := k.opts.State(ctx)
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

// pictureOf returns the image in a file, or a smaller copy if it is too large, with its size in bytes. Its type is that of the bytes,
// because providers refuse an image of another type than is said. It returns nil if the file is gone, or is not an image.
func pictureOf(ctx context.Context, st *thread.State, path string) (*model.Image, int64, error) {
	info, err := st.ImageInfo(ctx, path)
	switch {
	case thread.IsInvalid(err), errors.Is(err, store.ErrNotFound): // its contents are lost
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	case info == nil || !transcript.IsPicture(info.MimeType):
		return nil, 0, nil // the message still names it
	case info.Size > maxPictureBytes || max(info.Width, info.Height) > maxPictureSide:
		small, err := st.Thumbnail(ctx, path, thread.ThumbnailOptions{Width: thread.MaxThumbnail, Height: thread.MaxThumbnail})
		if thread.IsInvalid(err) || errors.Is(err, store.ErrNotFound) || err == nil && small == nil {
			return nil, 0, nil
		}
		if err != nil {
			return nil, 0, err
		}
		return &model.Image{MimeType: small.MimeType, Read: func(context.Context) ([]byte, error) { return small.Data, nil }}, int64(len(small.Data)), nil
	}
	return &model.Image{MimeType: info.MimeType, Read: func(ctx context.Context) ([]byte, error) { return readPicture(ctx, st, path) }}, info.Size, nil
}

// readPicture returns the content of a file. It is called when the request is made.
func readPicture(ctx context.Context, st *thread.State, path string) ([]byte, error) {
	body, _, _, err := st.OpenContents(ctx, path)
	if err != nil {
		return nil, err
	}
	if body == nil {
		return nil, fmt.Errorf("the file %s was deleted before the model call could read it", path)
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, maxPictureBytes+1))
	if err == nil && len(data) > maxPictureBytes {
		err = fmt.Errorf("the file %s has grown beyond the limit for images before the model call could read it", path)
	}
	return data, err
}
