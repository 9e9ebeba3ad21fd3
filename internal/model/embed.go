package model

import "context"

// Embedder turns texts into vectors. A Client whose provider can do so implements it; see EmbedderOf. It is safe
// for concurrent use.
type Embedder interface {
	// Embed gives one vector for each text, in their order, all of the same length. Errors are as those of Stream.
	Embed(ctx context.Context, texts []string) (*Embeddings, error)
}

// Embeddings of texts.
type Embeddings struct {
	Vectors [][]float32
	Usage   *Usage // nil when the provider did not say
}

// EmbedderOf gives the embedder of a model's client; an *Error of KindConfig when the provider has none.
func EmbedderOf(c Client, name string) (Embedder, error) {
	if e, ok := c.(Embedder); ok {
		return e, nil
	}
	return nil, Errorf(KindConfig, "model %s: its provider gives no embeddings: use a Model of provider openai or scripted", name)
}
