package thread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// sweepAge is how old an object must be to be swept: a write in another place may not have ended.
const sweepAge = time.Hour

// Sweep removes what crashes have left in the bucket: temporary objects, and contents that no file refers
// to, once they are an hour old. It gives the number of removed objects.
func (s *Service) Sweep(ctx context.Context) (removed int, err error) {
	before := s.clock.Now().Add(-sweepAge)
	n, err := s.blobs.sweep(ctx, tempPrefix, before, func(key string) error { return s.blobs.bucket.Delete(ctx, key) })
	if err != nil {
		return n, err
	}
	m, err := s.blobs.sweep(ctx, blobPrefix, before, func(key string) error {
		return s.blobs.collect(ctx, strings.ReplaceAll(strings.TrimPrefix(key, blobPrefix), "/", ""))
	})
	return n + m, err
}

func (c *contents) sweep(ctx context.Context, prefix string, before time.Time, remove func(key string) error) (removed int, err error) {
	for objects := c.bucket.List(&blob.ListOptions{Prefix: prefix}); ; {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return removed, nil
		}
		if err != nil {
			return removed, fmt.Errorf("list the bucket of file contents: %w", unavailable(err))
		}
		if o.IsDir || !o.ModTime.Before(before) {
			continue
		}
		if err := remove(o.Key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			return removed, err
		}
		there, err := c.bucket.Exists(ctx, o.Key)
		if err != nil {
			return removed, fmt.Errorf("look for %s: %w", o.Key, unavailable(err))
		}
		if !there {
			removed++
		}
	}
}
