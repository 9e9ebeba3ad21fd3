package thread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/skein-dev/skein/internal/store"
)

// FileChunk is a piece of a streamed file (FIL-03). Data is valid until the next chunk is requested.
type FileChunk struct {
	Data        []byte `json:"data"`
	Index       int64  `json:"index"` // from 0
	TotalChunks int64  `json:"totalChunks"`
	IsLast      bool   `json:"isLast"`
}

// ReadFileStream returns a file in chunks of ChunkSize; nil when the file does not exist (FIL-03). An empty file has
// one chunk. Ending the loop or ctx ends the stream. After an error there is no further chunk.
func (st *State) ReadFileStream(ctx context.Context, path string) (iter.Seq2[FileChunk, error], error) {
	rec, err := st.StatFile(ctx, path)
	if rec == nil || err != nil {
		return nil, err
	}
	if rec.IsDirectory {
		return nil, pathError(rec.Path, store.ErrFolder)
	}
	return func(yield func(FileChunk, error) bool) {
		rc, rec, err := st.OpenFile(ctx, rec.Path)
		if err == nil && rc == nil {
			err = fmt.Errorf("%s: %w", path, store.ErrNotFound) // removed in the meantime
		}
		if err != nil {
			yield(FileChunk{}, err)
			return
		}
		defer func() { _ = rc.Close() }()
		chunks(ctx, rc, rec, yield)
	}, nil
}

func chunks(ctx context.Context, r io.Reader, rec *FileRecord, yield func(FileChunk, error) bool) {
	buf := make([]byte, min(ChunkSize, rec.Size))
	left := rec.Size
	for i := range rec.ChunkCount {
		data := buf[:min(ChunkSize, left)]
		_, err := io.ReadFull(r, data)
		if err = errors.Join(ctx.Err(), err); err != nil {
			yield(FileChunk{}, fmt.Errorf("read %s: %w", rec.Path, err))
			return
		}
		left -= int64(len(data))
		if !yield(FileChunk{Data: data, Index: i, TotalChunks: rec.ChunkCount, IsLast: i == rec.ChunkCount-1}, nil) {
			return
		}
	}
}
