package thread

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

const (
	// sweepAge is how long an object must have been seen without contents before it is swept. It is much longer than
	// store.MaxUploadAge, after which no transaction refers to the object any more, so clocks may differ by hours.
	sweepAge = 24 * time.Hour
	// sweepPage is how many objects one call of the store checks.
	sweepPage = 500
)

// Sweep removes what crashes have left in the bucket: objects that were without contents at a sweep a day ago and still
// are. It returns the number of removed objects. Any replica may sweep, and several may sweep at once.
func (s *Service) Sweep(ctx context.Context) (removed int, err error) {
	if held, err := s.store.ContentsHeld(ctx); held || err != nil {
		return 0, err
	}
	before := s.clock.Now().Add(-sweepAge).UnixMicro()
	// Folder by folder, since a file:// bucket reads the whole of what it lists again for each page.
	folders, token := []string{""}, blob.FirstPageToken
	for len(folders) > 0 {
		page, within, next, err := s.listObjects(ctx, folders[0], token)
		if err != nil {
			return removed, err
		}
		folders = append(folders, within...)
		if token = next; len(token) == 0 {
			folders, token = folders[1:], blob.FirstPageToken
		}
		forgotten, err := s.store.SweepObjects(ctx, page, before)
		if err != nil {
			return removed, err
		}
		for _, o := range forgotten {
			if err := s.blobs.bucket.Delete(ctx, o); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
				return removed, fmt.Errorf("remove %s: %w", o, unavailable(err))
			}
			removed++
		}
	}
	return removed, nil
}

// listObjects returns a page of the objects of a folder, the folders in it, and the token of the next page; no token at
// the end.
func (s *Service) listObjects(ctx context.Context, folder string, token []byte) (page, folders []string, next []byte, err error) {
	for {
		objects, next, err := s.blobs.bucket.ListPage(ctx, token, sweepPage, &blob.ListOptions{Prefix: folder, Delimiter: "/"})
		// A folder is listed by name first, and its files are read afterwards. A file that is removed in between ends
		// the listing with not found. That is harmless, and listing again does not meet the file.
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("list the bucket of file contents: %w", unavailable(err))
		}
		for _, o := range objects {
			if o.IsDir {
				folders = append(folders, o.Key)
			} else {
				page = append(page, o.Key)
			}
		}
		return page, folders, next, nil
	}
}
