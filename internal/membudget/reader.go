package membudget

import (
	"context"
	"io"
)

// step is the least that a buffer grows by.
const step = 4 << 10

// ReadAll is io.ReadAll whose buffer is drawn from an account as it grows. What it returns stays drawn.
func ReadAll(ctx context.Context, a *Account, r io.Reader) ([]byte, error) {
	if a == nil {
		return io.ReadAll(r)
	}
	var b []byte
	for {
		if len(b) == cap(b) {
			grown := max(2*cap(b), step)
			// Until the old buffer is let go, there are both.
			if err := a.Draw(ctx, int64(grown)); err != nil {
				a.Return(int64(cap(b)))
				return nil, err
			}
			a.Return(int64(cap(b)))
			b = append(make([]byte, 0, grown), b...)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch err {
		case nil:
		case io.EOF:
			return b, nil
		default:
			a.Return(int64(cap(b)))
			return b, err
		}
	}
}
