package thread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

const (
	// sweepAge is how long an object must have been seen without contents to be swept. It is much longer than
	// store.MaxUploadAge, after which no transaction refers to it any more, so that clocks may differ by hours.
	sweepAge = 24 * time.Hour
	// sweepPage is how many objects the store is asked about at once.
	sweepPage = 500
)

// Sweep removes what crashes have left in the bucket: objects that were without contents at a sweep a day ago
// and still are. It gives the number of removed objects. Any replica may sweep, several at once too.
func (s *Service) Sweep(ctx context.Context) (removed int, err error) {
	before := s.clock.Now().Add(-sweepAge).UnixMicro()
	objects := s.blobs.bucket.List(&blob.ListOptions{})
	for {
		page, err := nextObjects(ctx, objects)
		if err != nil || len(page) == 0 {
			return removed, err
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
}

// nextObjects gives some more of a listing, none at its end.
func nextObjects(ctx context.Context, list *blob.ListIterator) (page []string, err error) {
	for len(page) < sweepPage {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return page, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list the bucket of file contents: %w", unavailable(err))
		}
		if !o.IsDir {
			page = append(page, o.Key)
		}
	}
	return page, nil
}
