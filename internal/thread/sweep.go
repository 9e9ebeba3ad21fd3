package thread

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// listPage is how many objects a page of the bucket has at most; those of S3 have no more than 1,000. A file:// bucket reads a folder
	// from its beginning for each page. newObject spreads the objects over 256 folders, so up to 2.5 million of them take one page a folder.
	listPage = 10_000
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
	var busy error // of folders in which files came and went all the time: those of one thread keep no others from being swept
	for len(folders) > 0 {
		l, err := s.listObjects(ctx, folders[0], token)
		if gcerrors.Code(err) == gcerrors.NotFound && ctx.Err() == nil {
			busy = errors.Join(busy, err)
		} else if err != nil {
			return removed, err
		}
		folders = append(folders, l.folders...)
		if token = l.next; len(token) == 0 {
			folders, token = folders[1:], blob.FirstPageToken
		}
		for page := range slices.Chunk(l.page, sweepPage) {
			n, err := s.sweepObjects(ctx, page, before)
			removed += n
			if err != nil {
				return removed, err
			}
		}
	}
	return removed, busy
}

// sweepObjects removes those of some objects that are to be removed, and returns how many it removed.
func (s *Service) sweepObjects(ctx context.Context, page []string, before int64) (removed int, err error) {
	forgotten, err := s.store.SweepObjects(ctx, page, before)
	if err != nil {
		return 0, err
	}
	for _, o := range forgotten {
		if err := s.blobs.bucket.Delete(ctx, o); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			return removed, fmt.Errorf("remove %s: %w", o, unavailable(err))
		}
		removed++
	}
	return removed, nil
}

// listed is a page of the objects of a folder, the folders in it, and the token of the next page; no token at the end.
type listed struct {
	page, folders []string
	next          []byte
}

func (s *Service) listObjects(ctx context.Context, folder string, token []byte) (listed, error) {
	l, err := listAgain(ctx, func() (l listed, err error) {
		objects, next, err := s.blobs.bucket.ListPage(ctx, token, listPage, &blob.ListOptions{Prefix: folder, Delimiter: "/"})
		l.next = next
		for _, o := range objects {
			if o.IsDir {
				l.folders = append(l.folders, o.Key)
			} else {
				l.page = append(l.page, o.Key)
			}
		}
		return l, err
	})
	if err != nil {
		return l, fmt.Errorf("list the bucket of file contents: %w", unavailable(err))
	}
	return l, nil
}
