package scripted

import (
	"context"
	"hash/fnv"
	"math"
	"strings"
	"unicode"

	"github.com/skein-dev/skein/internal/model"
)

// width is the length of the vectors.
const width = 256

// Embed implements model.Embedder. It hashes words, so texts with common words are near each other.
func (c *Client) Embed(ctx context.Context, texts []string) (*model.Embeddings, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	out := &model.Embeddings{Usage: &model.Usage{}}
	for _, t := range texts {
		v := make([]float32, width)
		words := strings.FieldsFunc(strings.ToLower(t), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		for _, w := range words {
			h := fnv.New64a()
			_, _ = h.Write([]byte(w))
			sum := h.Sum64()
			sign := float32(1)
			if sum&1 == 1 {
				sign = -1
			}
			v[(sum>>24)%width] += sign
		}
		normalise(v)
		out.Vectors = append(out.Vectors, v)
		out.Usage.InputTokens += int64(len(words))
	}
	return out, nil
}

// normalise scales a vector to length 1. The vector of a text without words gets an arbitrary direction.
func normalise(v []float32) {
	var square float64
	for _, x := range v {
		square += float64(x) * float64(x)
	}
	if square == 0 {
		v[0] = 1
		return
	}
	for i := range v {
		v[i] = float32(float64(v[i]) / math.Sqrt(square))
	}
}
