package sqlstore

import (
	"context"
	"sync"
)

// checkpointAfter is how many statements may have written before what they wrote is copied from the write-ahead log into the
// database. Together they change some 5,000 pages, 20 MB of log. A variable for the tests.
var checkpointAfter = 16384

// checkpointPages is from how many pages of the log on the writer copies them itself, whoever waits for it: under writes that never
// pause only it comes to the log's end, where the log begins anew. 48 MiB, less than what is kept of the file.
const checkpointPages = 12288

// checkpointer copies what was committed from SQLite's write-ahead log into the database, beside the writer, which would do that
// between two batches and keep waiting whoever comes. Nothing rests on it: what is committed is durable in the log.
type checkpointer struct {
	open func(ctx context.Context) (*conn, error)
	due  chan struct{}
	quit chan struct{}
	done sync.WaitGroup
	// written is how many statements the writer has made since it was last due; the writer's own.
	written int
}

func newCheckpointer(open func(ctx context.Context) (*conn, error)) *checkpointer {
	c := &checkpointer{open: open, due: make(chan struct{}, 1), quit: make(chan struct{})}
	c.done.Go(c.loop)
	return c
}

// wrote notes how many statements were committed. Only the writer calls it.
func (c *checkpointer) wrote(statements int) {
	if c.written += statements; c.written < checkpointAfter {
		return
	}
	c.written = 0
	select {
	case c.due <- struct{}{}:
	default:
	}
}

func (c *checkpointer) loop() {
	var on *conn
	defer func() {
		if on != nil {
			_ = on.close()
		}
	}()
	for {
		select {
		case <-c.quit:
			return
		case <-c.due:
		}
		ctx := context.Background() // it is not given up halfway
		if on == nil {
			fresh, err := c.open(ctx)
			if err != nil {
				continue // the writer says so with its next batch, and copies when there is too much
			}
			on = fresh
		}
		// It waits for nobody: it copies as far as no reader still needs what was there before.
		if _, err := on.exec(ctx, "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
			_ = on.close()
			on = nil
		}
	}
}

// close waits for what is under way.
func (c *checkpointer) close() error {
	close(c.quit)
	c.done.Wait()
	return nil
}
