package search

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

const defaultNearest = 10

// Compared is with how many vectors a search compares at most: those of the newest messages. So it takes a bounded time,
// however long a user has talked with an agent. Tests set it lower.
var Compared int64 = 20_000

// PutEmbedding stores the vector of a message whose text has not changed since it was embedded.
func PutEmbedding(t *txn.Tx, h *txn.Head, op *store.PutEmbedding) error {
	op.Kept = false
	if err := h.Whole(); err != nil {
		return err
	}
	vector := encodeVector(op.Vector)
	if vector == nil {
		return nil
	}
	var seq, created int64
	var content sqldb.Text
	var silent bool
	var namespace, user string
	err := t.Row(t.Ctx, queries.Embedded, []any{h.Key, op.MessageID}, &seq, &content, &silent, &created, &namespace, &user)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || silent || !content.Valid || content.String != op.Content {
		return err
	}
	op.Kept = true
	return t.Write(t.Ctx, queries.PutEmbedding, h.Key, seq, namespace, op.Agent, user, op.Space, created, vector)
}

// encodeVector returns a vector, scaled to length 1, as bytes; nil when it has no direction.
func encodeVector(v []float32) []byte {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	length := math.Sqrt(sum)
	if length == 0 || math.IsNaN(length) || math.IsInf(length, 0) {
		return nil
	}
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(float64(x)/length)))
	}
	return out
}

// dot returns the dot product of two encoded vectors of the same length.
func dot(a, b []byte) float64 {
	var sum float32
	for i := 0; i+4 <= len(a); i += 4 {
		sum += math.Float32frombits(binary.LittleEndian.Uint32(a[i:])) * math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
	}
	return float64(sum)
}

// near is the position of a message and its score.
type near struct {
	thread, seq int64
	score       float64
}

// farFirst is a heap of the nearest messages so far, with the farthest on top.
type farFirst []near

func (f farFirst) Len() int           { return len(f) }
func (f farFirst) Less(i, j int) bool { return f[i].score < f[j].score }
func (f farFirst) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *farFirst) Push(x any)        { *f = append(*f, x.(near)) }
func (f *farFirst) Pop() any {
	last := len(*f) - 1
	x := (*f)[last]
	*f = (*f)[:last]
	return x
}

// Nearest implements store.MemoryStore. It reads the vectors row by row.
func (s Store) Nearest(ctx context.Context, q store.NearestQuery) ([]store.NearMessage, error) {
	want := encodeVector(q.Vector)
	if want == nil {
		return []store.NearMessage{}, nil
	}
	if q.Limit <= 0 {
		q.Limit = defaultNearest
	}
	if q.Until == 0 {
		q.Until = math.MaxInt64
	}
	found := []store.NearMessage{}
	err := s.DB.Readers.Interruptible().Snapshot(ctx, func(c *sqldb.Conn) error {
		best, err := nearest(ctx, c, q, want)
		if err != nil {
			return err
		}
		for _, n := range best {
			m := store.NearMessage{Score: n.score}
			msg, err := messages.Scan(func(dst ...any) error {
				return c.Row(ctx, queries.Remembered, []any{n.thread, n.seq}, append([]any{&m.ThreadID, &m.Name, &m.Title}, dst...)...)
			})
			if err != nil {
				return err
			}
			m.Message = *msg
			found = append(found, m)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("search the memory of agent %s: %w", q.Agent, err)
	}
	return found, nil
}

func nearest(ctx context.Context, c *sqldb.Conn, q store.NearestQuery, want []byte) ([]near, error) {
	var best farFirst
	err := c.Rows(ctx, queries.Vectors, []any{q.Namespace, q.Agent, q.UserID, q.Space, q.Since, q.Until, Compared}, func(scan sqldb.Scanner) error {
		var n near
		var vector []byte
		if err := scan(&n.thread, &n.seq, &vector); err != nil {
			return err
		}
		if len(vector) != len(want) {
			return nil // the model's vectors have another length by now
		}
		n.score = dot(vector, want)
		if len(best) < q.Limit {
			heap.Push(&best, n)
		} else if n.score > best[0].score {
			best[0] = n
			heap.Fix(&best, 0)
		}
		return nil
	})
	slices.SortFunc(best, func(a, b near) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.thread, a.thread), cmp.Compare(b.seq, a.seq))
	})
	return best, err
}
