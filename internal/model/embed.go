package model

import "context"

// Embedder computes vectors of texts. A Client implements it when its provider can; see EmbedderOf. It is safe for
// concurrent use.
type Embedder interface {
	// Embed returns one vector for each text, in order, all of the same length. Its errors are those of Stream.
	Embed(ctx context.Context, texts []string) (*Embeddings, error)
}

// Embeddings are the vectors of texts.
type Embeddings struct {
	Vectors [][]float32
	Usage   *Usage // nil when the provider did not say
}

// EmbedderOf returns the embedder of a model's client, or an *Error of KindConfig when the provider has none.
func EmbedderOf(c Client, name string) (Embedder, error) {
	if e, ok := c.(Embedder); ok {
		return e, nil
	}
	return nil, Errorf(KindConfig, "model %s: its provider has no embeddings: use a Model of provider openai or scripted", name)
}
